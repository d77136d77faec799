# A loop of one's own, recorded by three lines, and the plane of its last round's clients by two.
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

import fedscope

digits = load_digits()
x, y = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
train, test = (x[:1400], y[:1400]), (x[1400:], y[1400:])
mine = {k: [i for i in range(1400) if y[i] // 2 == k] for k in range(5)}
server = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

with fedscope.Recorder("runs/mine", model=server, data=(train, test), partition=mine, source="my loop") as recorder:
    for _ in range(5):
        clients = {k: copy.deepcopy(server) for k in mine}
        for k, net in clients.items():
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            for rows in torch.tensor(mine[k]).split(20):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
                optimiser.step()
        with torch.no_grad():
            for name, value in server.named_parameters():
                value.copy_(sum(net.get_parameter(name) for net in clients.values()) / len(clients))
        recorder.round(clients=clients, global_=server)

plane = fedscope.plane("runs/mine", model=server, grid=15)
plane.figure().savefig("mine.png")
