"""A wide-area network on one machine: a namespace per place, and between them delay, rate, loss and cut links.

Linux, as root, with ``/dev/net/tun`` and iproute2; nothing else, in particular no netem in the kernel.
:class:`chaos.wan.network.Network` is the way in::

    with Network(["Paris", "Sydney"]) as network:
        network.set("Paris", "Sydney", delay_ms=278.83, rate_mbit=100)
        process = network.run("Paris", ["ping", "-c", "3", network.address("Sydney")])
        network.cut("Paris", "Sydney")
"""
