// etcd, the store behind the real Kubernetes API server, built from its Go modules.
//
// The versions of etcd that package registries carry ready-made are too old for an API server that is asked
// for initial events on a watch.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
