package node

import (
	"encoding/json"

	"github.com/perdure/perdure/internal/cluster/host"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// process is how a process describes itself to other processes. It has the facts with which package
// host can prove that the process is gone.
type process struct {
	Host      string `json:"host"`
	BootID    string `json:"boot"`
	Namespace string `json:"namespace"`
	PID       int    `json:"pid"`
	PIDStart  int64  `json:"start"`
}

// DescribeProcess describes this process, for ProcessGone in another process.
func DescribeProcess() string {
	n := host.Self(model.NodeID{}, "")
	text, err := json.Marshal(process{Host: n.Host, BootID: n.BootID, Namespace: n.Namespace, PID: n.PID, PIDStart: n.PIDStart})
	if err != nil {
		return "" // other processes wait until its leases end
	}
	return string(text)
}

// ProcessGone reports whether the process that DescribeProcess has described is provably gone. In
// doubt it reports false.
func ProcessGone(description string) bool {
	var p process
	if err := json.Unmarshal([]byte(description), &p); err != nil {
		return false
	}
	return host.IsGone(store.NodeInfo{Host: p.Host, BootID: p.BootID, Namespace: p.Namespace, PID: p.PID, PIDStart: p.PIDStart})
}
