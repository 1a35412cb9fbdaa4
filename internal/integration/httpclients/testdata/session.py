# Sends POST requests with the package requests, in eight threads with a session each, until a response
# says that it is the last one, for two minutes at most.
import sys
import threading
import time

import requests

url = sys.argv[1]
sent, failures, ended = [], [], threading.Event()
end = time.monotonic() + 120


def send():
    with requests.Session() as session:
        session.verify = False
        while not ended.is_set() and time.monotonic() < end:
            sent.append(1)
            try:
                response = session.post(url, data="hello")
                response.raise_for_status()
                if response.text == "last":
                    ended.set()
            except requests.RequestException as e:
                failures.append(e)


requests.packages.urllib3.disable_warnings()
threads = [threading.Thread(target=send) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(sent), len(failures), *failures[:1])
