"""A plain PyTorch loop: for each client, copy the common model, take the local steps, add the weighted result."""

from __future__ import annotations

from benchmarks.peers.workload import CYCLE, STEP_SIZE


def run(work, gate) -> None:
    import torch

    from benchmarks.peers.torch_parts import Network, tensors

    gate.imported()
    images, labels, rows = tensors(work)
    network = Network(work)
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=STEP_SIZE)
    common = [p.detach().clone() for p in parameters]
    going, t = gate.open(), 0
    while going:
        total = [torch.zeros_like(c) for c in common]
        for client_rows in rows[t % CYCLE]:
            with torch.no_grad():
                for p, c in zip(parameters, common, strict=True):
                    p.copy_(c)
            for batch in client_rows:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
                optimizer.step()
            for sum_, p in zip(total, parameters, strict=True):
                sum_.add_(p.detach(), alpha=1.0 / work.clients)
        common, t = total, t + 1
        going = gate.round_done(lambda final=common: torch.cat([c.reshape(-1) for c in final]).numpy())
