"""Training with TensorFlow's ParameterServerStrategy: one program for chief, workers and servers."""

import tensorflow as tf

STEPS, POINTS, RATE = 200, 64, 0.1
SLOPE = [2.0, -1.0, 0.5]


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Serve the chief until the run ends."""
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    server.join()


def train(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros(4))

    @tf.function
    def one_step(step: tf.Tensor) -> None:
        points = tf.random.stateless_normal([POINTS, 3], seed=[1, step])
        with tf.GradientTape() as tape:
            guessed = tf.linalg.matvec(points, weights[:3]) + weights[3]
            loss = tf.reduce_mean((guessed - tf.linalg.matvec(points, tf.constant(SLOPE)) - 3.0) ** 2)
        weights.assign_sub(RATE * tape.gradient(loss, weights))

    for number in range(STEPS):
        coordinator.schedule(one_step, args=(tf.constant(number),))
    coordinator.join()
    far = float(tf.reduce_max(tf.abs(weights[:3] - tf.constant(SLOPE))))
    print(f"weights on {weights.device}", flush=True)
    print(f"found the slope within {far:.4f}", flush=True)
    assert far < 0.05


if __name__ == "__main__":
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "chief":
        train(cluster)
    else:
        serve(cluster)
