"""What a stranger may do to a daemon's sockets. hostile.py HOW ENDPOINT [COUNT]: an endpoint is a port of loopback or the path of a
local socket. Ends when the daemon has answered or closed, so that what comes after in a script comes after it."""
import os
import random
import socket
import struct
import sys

LOOPBACK = "127.0.0.1"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
WAIT = 10.0


def tcp(port):
    return socket.create_connection((LOOPBACK, int(port)), WAIT)


def local(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(path) # without a time-out: it would not wait for room in the queue, but fail
    made.settimeout(WAIT)
    return made


def read_until_closed(connection):
    try:
        while connection.recv(1 << 16):
            pass
    except (ConnectionError, BrokenPipeError):
        pass


def read_exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed early")
        data += more
    return data


def frame(body, flags=0):
    if len(body) > 255:
        return bytes([flags | 2]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body


def prop(name, value):
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def shake_hands(connection, identity=b""):
    """As a DEALER of ZeroMQ would."""
    connection.sendall(GREETING)
    read_exactly(connection, len(GREETING))
    connection.sendall(frame(b"\x05READY" + prop(b"Socket-Type", b"DEALER") + prop(b"Identity", identity), 4))
    flags, size = read_exactly(connection, 2)
    read_exactly(connection, size)


def garbage(port, count, rng):
    """Bytes that are no greeting."""
    for _ in range(count):
        with tcp(port) as connection:
            try:
                connection.sendall(rng.randbytes(rng.randrange(1, 4096)))
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            read_until_closed(connection)


def half(port, count, rng):
    """Greetings that end in the middle."""
    for _ in range(count):
        with tcp(port) as connection:
            connection.sendall(GREETING[: rng.randrange(1, len(GREETING))])
            connection.shutdown(socket.SHUT_WR)
            read_until_closed(connection)


def frames(port, count, rng):
    """A proper ZeroMQ peer whose messages make no sense; the last part of some is never sent."""
    for i in range(count):
        with tcp(port) as connection:
            shake_hands(connection)
            try:
                body = rng.randbytes(rng.choice([0, 1, 7, 100, 5000]))
                connection.sendall(frame(body, 1) + frame(b"x" * 10) if i % 4 == 1 else frame(body))
            except OSError:
                continue
            read_until_closed(connection)


def impostor(port, count, rng):
    """A peer that chooses its own routing id."""
    for i in range(count):
        with tcp(port) as connection:
            shake_hands(connection, b"rank %d" % i)
            connection.sendall(frame(rng.randbytes(64)))
            read_until_closed(connection)


def huge(port, count, rng):
    """A frame that says it has 2^62 bytes."""
    for _ in range(count):
        with tcp(port) as connection:
            shake_hands(connection)
            connection.sendall(b"\x02" + struct.pack(">Q", 1 << 62))
            read_until_closed(connection)


def records(path, count, rng):
    """Records that are no message. A few random bytes may be one of no harm, so each begins with what is none."""
    for _ in range(count):
        with local(path) as connection:
            connection.send(b"\xff\xff" + rng.randbytes(rng.randrange(1, 4096)))
            read_until_closed(connection)


def large(path, count, rng):
    """A record of 200 KiB, which is more than a message may have."""
    for _ in range(count):
        with local(path) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            connection.send(bytes(200 << 10))
            read_until_closed(connection)


def pass_on(connection, descriptors):
    """False: the kernel refuses them in the daemon's name (Linux 6.16)."""
    try:
        socket.send_fds(connection, [b"\xff\xff\xff"], descriptors)
        return True
    except PermissionError:
        return False


def descriptors(path, count, rng):
    """Descriptors that nobody asked for."""
    with open(os.devnull, "rb") as file:
        for _ in range(count):
            with local(path) as connection:
                if pass_on(connection, [file.fileno()] * 40):
                    read_until_closed(connection)


def lingering(path, count, rng):
    """A TCP socket that has more to send than its peer reads, and is told to wait for that for a minute when it is closed. The
    daemon would be the last to close it."""
    with socket.create_server((LOOPBACK, 0)) as server, local(path) as connection:
        passed = tcp(server.getsockname()[1])
        peer = server.accept()[0]
        passed.setblocking(False)
        try:
            while passed.send(bytes(1 << 16)):
                pass
        except BlockingIOError:
            pass
        passed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        if pass_on(connection, [passed.fileno()]):
            os.close(passed.detach())
            read_until_closed(connection)
        peer.close()


def connects(endpoint, count, rng):
    """Comes and goes."""
    for _ in range(count):
        (tcp if endpoint.isdigit() else local)(endpoint).close()


def main():
    how, endpoint, count = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
    globals()[how](endpoint, count, random.Random(count))


main()
