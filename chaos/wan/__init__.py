"""A wide-area network on one machine: one network namespace per place, links with delay, rate, loss and cuts.

It requires Linux, root, ``/dev/net/tun`` and iproute2, but no netem in the kernel. Use
:class:`chaos.wan.network.Network`::

    with Network(["Paris", "Sydney"]) as network:
        network.set("Paris", "Sydney", delay_ms=278.83, rate_mbit=100)
        process = network.run("Paris", ["ping", "-c", "3", network.address("Sydney")])
        network.cut("Paris", "Sydney")
"""
