fedscope sweep method=fma,fedprox,scaffold --seeds 0..2 --set run.rounds=10 --set data.clients=10 --out sweeps/mine
fedscope table sweeps/mine --out table
fedscope curves sweeps/mine --bands --out curves
