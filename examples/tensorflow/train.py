"""Data-parallel training with TensorFlow's MultiWorkerMirroredStrategy on points of each worker's own."""

import tensorflow as tf

STEPS, POINTS, RATE = 200, 64, 0.1
SLOPE = [2.0, -1.0, 0.5]

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
rank, size = resolver.task_id, strategy.num_replicas_in_sync

with strategy.scope():
    # The updates of all workers are averaged.
    weights = tf.Variable(tf.zeros(4), aggregation=tf.VariableAggregation.MEAN)


@tf.function
def train(step: tf.Tensor) -> tf.Tensor:
    return strategy.reduce("MEAN", strategy.run(one_step, args=(step,)), axis=None)


def one_step(step: tf.Tensor) -> tf.Tensor:
    points = tf.random.stateless_normal([POINTS, 3], seed=[rank, step])
    with tf.GradientTape() as tape:
        guessed = tf.linalg.matvec(points, weights[:3]) + weights[3]
        loss = tf.reduce_mean((guessed - tf.linalg.matvec(points, SLOPE) - 3.0) ** 2)
    weights.assign_sub(RATE * tape.gradient(loss, weights))
    return loss


print(f"worker {rank} of {size}", flush=True)
for number in range(1, STEPS + 1):
    error = train(tf.constant(number))
    if number % 50 == 0 and rank == 0:
        print(f"step {number}  loss {float(error):.5f}", flush=True)
far = float(tf.reduce_max(tf.abs(weights[:3] - SLOPE)))
print(f"found the slope within {far:.4f}", flush=True)
assert far < 0.05
