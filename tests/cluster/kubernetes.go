// Kubernetes' control plane, kubelet and kube-proxy as one program: kubernetes NAME [OPTION]...
// Separate programs would each link most of the same code again.
package main

import (
	goflag "flag"
	"fmt"
	"math/rand"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// newCommand returns the command of a program, set up as the program's own main() does.
func newCommand(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand()
	case "kube-proxy":
		pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
		pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
		return proxy.NewProxyCommand()
	}
	fmt.Fprintf(os.Stderr, "kubernetes: unknown program '%s'\n", name)
	os.Exit(2)
	return nil
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kubernetes NAME [OPTION]...")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	rand.Seed(time.Now().UnixNano())
	command := newCommand(os.Args[0])
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
