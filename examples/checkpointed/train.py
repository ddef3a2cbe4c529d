import time, os
from argosy_sdk import agree, asked, due, latest, saving
folder = latest()
step = int((folder / "rank-0.txt").read_text()) if folder else 0
print("start at", step, "attempt", os.environ["ARGOSY_ATTEMPT"], "resume", os.environ["ARGOSY_RESUME"], os.environ["ARGOSY_RESUME_FROM"], flush=True)
while step < 3000:
    step += 1
    time.sleep(0.05)
    if due(step):
        order = asked()
        with saving(step) as folder:
            (folder / "rank-0.txt").write_text(str(step))
        print("saved", step, order, flush=True)
        if order and order.stop:
            print("stopping at", step, flush=True)
            time.sleep(600)
