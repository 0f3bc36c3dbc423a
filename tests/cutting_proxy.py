"""A socket before PostgreSQL's that breaks one connection while it commits: before the server hears of it, or after."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

SOCKET = ".s.PGSQL.5432"
COMMIT_S = 0.5  # in which the server commits


@contextmanager
def cutting_proxy(server_folder, folder, *, server_hears):
    """Pass on what clients and the server say, until an event is set: then the next COMMIT breaks its connection.

    Yields that event, and one that is set when this happened.

    server_hears   whether the COMMIT is passed on; its answer never is
    """
    listening, armed, cut = socket.socket(socket.AF_UNIX), threading.Event(), threading.Event()
    listening.bind(str(folder / SOCKET))
    listening.listen()

    def serve():
        with suppress(OSError):  # the listening socket is shut down
            while True:
                client, _ = listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(server_folder / SOCKET))
                silent = threading.Event()
                threading.Thread(target=copy_from_client, args=(client, server, silent), daemon=True).start()
                threading.Thread(target=copy_from_server, args=(client, server, silent), daemon=True).start()

    def copy_from_client(client, server, silent):
        with suppress(OSError):
            while content := client.recv(65536):
                if b"COMMIT\0" in content and armed.is_set() and not cut.is_set():
                    silent.set()
                    if server_hears:
                        server.sendall(content)
                        time.sleep(COMMIT_S)
                    cut.set()
                    break
                server.sendall(content)
        shut_down(client, server)

    def copy_from_server(client, server, silent):
        with suppress(OSError):
            while content := server.recv(65536):
                if not silent.is_set():
                    client.sendall(content)
        shut_down(client, server)
        client.close()
        server.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield armed, cut
    finally:
        shut_down(listening)
        thread.join()
        listening.close()


def shut_down(*sockets):
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
