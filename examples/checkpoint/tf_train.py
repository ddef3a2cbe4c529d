"""Finds a slope with TensorFlow's MultiWorkerMirroredStrategy; saves every tenth step.

    export ARGOSY_CHECKPOINT_DIR=/tmp/slope
    TF_CONFIG='{"cluster": …, "task": …}' python tf_train.py

All workers save at the same steps without having to agree. The random numbers of a step depend on its number
alone, so only the weights and the step are saved.
"""

import sys

import numpy as np
import tensorflow as tf

from argosy_sdk import latest, saving

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
EVERY = 10
RATE = 0.1
SLOPE = [2.0, -1.0, 0.5]

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
with strategy.scope():
    weights = tf.Variable(tf.zeros(3), aggregation=tf.VariableAggregation.MEAN)


@tf.function
def train(step: tf.Tensor) -> None:
    strategy.run(one_step, args=(step,))


def one_step(step: tf.Tensor) -> None:
    points = tf.random.stateless_normal([64, 3], seed=[rank, step])
    with tf.GradientTape() as tape:
        guessed = tf.linalg.matvec(points, weights)
        loss = tf.reduce_mean((guessed - tf.linalg.matvec(points, SLOPE)) ** 2)
    weights.assign_sub(RATE * tape.gradient(loss, weights))


step, folder = 0, latest()
if folder is not None:
    weights.assign(np.load(folder / "weights.npy"))
    step = int(folder.name.removeprefix("step-"))
    if rank == 0:
        print(f"continuing after step {step}", flush=True)
while step < STEPS:
    step += 1
    train(tf.constant(step))
    if rank == 0:
        print(f"step {step}", flush=True)
    if step % EVERY == 0 or step == STEPS:
        with saving(step) as folder:
            if rank == 0:
                np.save(folder / "weights.npy", weights.numpy())
if rank == 0:
    print(f"found the slope {weights.numpy().tolist()}", flush=True)
