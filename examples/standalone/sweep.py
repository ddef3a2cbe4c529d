"""One learning rate of a sweep, chosen by the pod's index: fits a line by gradient descent."""

import os
import random
import time

RATES = (0.3, 0.03)
STEPS = 200

index = int(os.environ["ARGOSY_INDEX"])
rate = RATES[index % len(RATES)]
random.seed(7)
points = [(x, 2 * x + 3) for x in (random.uniform(-1, 1) for _ in range(100))]
slope = offset = 0.0
for _ in range(STEPS):
    errors = [(slope * x + offset - y, x) for x, y in points]
    slope -= rate * sum(error * x for error, x in errors) / len(points)
    offset -= rate * sum(error for error, _ in errors) / len(points)
time.sleep(2)  # so that the job is seen running
print(f"rate {rate}: found the slope within {abs(slope - 2):.4f}")
