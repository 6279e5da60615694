"""What all of ours begin with: a domain on each side, a channel each way, a pool."""

import os

import tranship


def join(case):
    """The sender, the receiver, the pool; and the domain, which is to be kept."""
    socket = os.path.join(case.folder, "manager.sock")
    how = {"wait": "spin" if case.wait == "spin" else "sleep"}
    if case.role == 0:
        domain = tranship.embedded("ping", socket=socket)
        case.meet()
        with domain.listen("out", tranship.Sender, **how) as out, domain.listen("back", tranship.Receiver, **how) as back:
            sender, receiver = out.accept(), back.accept()
    else:
        case.meet()
        domain = tranship.connect("pong", socket=socket, autostart=False)
        receiver, sender = domain.open("out", tranship.Receiver, **how), domain.open("back", tranship.Sender, **how)
    pool = domain.pool("arrays", **case.pool)
    return sender, receiver, pool, domain


class Ends:
    def __init__(self, case, shared):
        self.payload = case.payload
        self.sender, self.receiver, self.pool, self.domain = join(case)

    def close(self):
        for end in (self.sender, self.receiver, self.pool, self.domain):
            end.close()
