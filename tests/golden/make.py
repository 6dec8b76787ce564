#!/usr/bin/python3
"""Writes optimizers.h: what PyTorch makes of sixteen weights in one step and in a hundred, for every optimizer of the
daemon and every combination of its options, in f32 and f64.

Made with PyTorch 1.13.1 of Debian 12 (apt-get install --no-install-recommends python3-torch), on the CPU and without
its AVX2 kernels: those fuse a multiplication and an addition where they fill a vector and do not where one is left
over, so that a result would depend on where in a tensor an element lies (`make.py avx2` shows by how much: 1 ulp of f64
after one step, 2.4e-6 of an f32 near zero after a hundred). PyTorch has no Lion: its rule is written
out here, in the operations of its authors' code.

    /usr/bin/python3 tests/golden/make.py > tests/golden/optimizers.h
"""

import os
import struct
import sys

os.environ["ATEN_CPU_CAPABILITY"] = sys.argv[1] if len(sys.argv) > 1 else "default"

import torch  # noqa: E402

COUNT = 16
STEPS = 100


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = m.clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def scramble(seed):
    """The same in the test: 32 bits that look random."""
    x = (seed * 2654435761 + 12345) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 2246822519) & 0xFFFFFFFF
    return x ^ (x >> 13)


def weight(i):
    return ((scramble(i) & 0xFFFF) - 32767.5) / 16384


def gradient(step, i):
    """Of many sizes; the last element never has one, the one before it only in every third step."""
    if i == COUNT - 1 or (i == COUNT - 2 and step % 3 != 0):
        return 0.0
    x = scramble(1000 + step * COUNT + i)
    return ((x & 0xFFFF) - 32767.5) / 32768 / (1 << (x >> 16 & 7))


# The name of the kind, PyTorch's class, and the combinations of its arguments.
CASES = (
    [("SGD", torch.optim.SGD, dict(lr=0.05, momentum=m, dampening=d, nesterov=n, weight_decay=w))
     for m, d, n in ((0, 0, False), (0.9, 0, False), (0.9, 0.25, False), (0.9, 0, True)) for w in (0, 0.01)]
    + [(kind, cls, dict(lr=lr, betas=betas, eps=eps, weight_decay=w))
       for kind, cls in (("ADAM", torch.optim.Adam), ("ADAMW", torch.optim.AdamW))
       for lr, betas, eps in ((0.001, (0.9, 0.999), 1e-8), (0.02, (0.8, 0.95), 1e-3), (0.01, (0.0, 0.9), 1e-6))
       for w in (0, 0.05)]
    + [("ADAGRAD", torch.optim.Adagrad, dict(lr=0.03, lr_decay=d, initial_accumulator_value=a, eps=e, weight_decay=w))
       for d in (0, 0.01) for a, e in ((0, 1e-10), (0.5, 1e-4)) for w in (0, 0.02)]
    + [("RMSPROP", torch.optim.RMSprop, dict(lr=0.002, alpha=a, eps=e, momentum=m, centered=c, weight_decay=w))
       for a, e in ((0.99, 1e-8), (0.9, 1e-3)) for m in (0, 0.9) for c in (False, True) for w in (0, 0.02)]
    + [("LION", Lion, dict(lr=lr, betas=betas, weight_decay=w))
       for lr, betas in ((0.0001, (0.9, 0.99)), (0.01, (0.95, 0.8))) for w in (0, 0.1)]
)


def run(cls, arguments, dtype):
    """The bits of the weights after one step and after the last."""
    p = torch.tensor([weight(i) for i in range(COUNT)], dtype=dtype, requires_grad=True)
    optimizer = cls([p], **arguments)
    results = []
    for step in range(1, STEPS + 1):
        p.grad = torch.tensor([gradient(step, i) for i in range(COUNT)], dtype=dtype)
        optimizer.step()
        if step in (1, STEPS):
            results.append(p.detach().tolist())
    if dtype == torch.float32:
        return [[struct.unpack("<I", struct.pack("<f", v))[0] for v in row] for row in results]
    return [[struct.unpack("<Q", struct.pack("<d", v))[0] for v in row] for row in results]


def options(arguments):
    names = {"lr": "learning_rate", "momentum": "momentum", "dampening": "dampening", "weight_decay": "weight_decay",
             "eps": "epsilon", "alpha": "alpha", "lr_decay": "learning_rate_decay",
             "initial_accumulator_value": "initial_accumulator"}
    members = [f".{names[k]} = {v!r}" for k, v in arguments.items() if k in names and v]
    if "betas" in arguments:
        members += [f".beta{i + 1} = {b!r}" for i, b in enumerate(arguments["betas"]) if b]
    return ", ".join(members)


def spec(kind, arguments):
    members = [f".kind = OPTIMIZER_{kind}"]
    members += [f".{k} = true" for k in ("momentum", "nesterov", "centered") if arguments.get(k)]
    return ", ".join(members)


def rows(bits, suffix):
    for row in bits:
        yield "\t\t{ " + ", ".join(f"{b:#x}{suffix}" for b in row) + " },"


def main():
    print("/* Made by make.py with PyTorch; do not edit. Weights after step 1 and step 100, as bits. */")
    print("/* clang-format off */")
    print(f"#define GOLDEN_COUNT {COUNT}")
    print(f"#define GOLDEN_STEPS {STEPS}\n")
    print("static const struct golden {")
    print("\tstruct optimizer_spec spec;\n\tstruct optimizer_options options;")
    print("\tuint32_t f32[2][GOLDEN_COUNT];\n\tuint64_t f64[2][GOLDEN_COUNT];")
    print("} golden[] = {")
    for kind, cls, arguments in CASES:
        print(f"\t{{ {{ {spec(kind, arguments)} }},\n\t  {{ {options(arguments)} }},")
        print("\t  {")
        print("\n".join(rows(run(cls, arguments, torch.float32), "u")))
        print("\t  },\n\t  {")
        print("\n".join(rows(run(cls, arguments, torch.float64), "u")))
        print("\t  } },")
    print("};")
    print("/* clang-format on */")


if __name__ == "__main__":
    main()
