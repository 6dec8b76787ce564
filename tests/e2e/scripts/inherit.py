"""As a socket unit would: inherit.py NAME ADDRESS COMMAND... listens on a port of that address and hands the descriptor over by name."""
import os
import socket
import sys

name, address, command = sys.argv[1], sys.argv[2], sys.argv[3:]
listener = socket.socket()
listener.bind((address, 0))
listener.listen()
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES=name)
os.execv(command[0], command)
