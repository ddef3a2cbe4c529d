// The real Kubernetes API server, built from its Go modules, as the judge of our own.
//
// Only the server itself is linked in; the profile of registered metrics and log formats is the
// upstream command's, so that behaviour over HTTP is that of a released binary.
package main

import (
	"os"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
