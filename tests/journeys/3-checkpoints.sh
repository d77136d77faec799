fedscope plane a.pt b.pt c.pt --model arch.py:Net --data test.npz --label ours --label theirs --label third --out three
