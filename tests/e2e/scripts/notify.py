"""A service manager's ear: notify.py SOCKET FILE writes every datagram's lines to the file, each in one write."""
import os
import socket
import sys

path, file = sys.argv[1:3]
ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ear.bind(path)
out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
while True:
    data = ear.recv(65536)
    os.write(out, data if data.endswith(b"\n") else data + b"\n")
