package perdure

import (
	server "github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/telemetry"
)

// Metrics is where an app that Dial has opened registers its metrics. The metrics stay there until
// the app closes. Package prom makes a Metrics from a Prometheus registry. This package does not
// link the client library of Prometheus, so that workers without metrics stay small.
type Metrics interface {
	// Register adds the metrics of an app. The app calls remove when it closes.
	Register(m *telemetry.Meter) (remove func(), err error)
}

// startMetrics makes the meter of an app and registers its metrics. If to is nil, the meter is nil
// and counts nothing.
func startMetrics(to Metrics) (m *telemetry.Meter, remove func(), err error) {
	if to == nil {
		return nil, func() {}, nil
	}
	m = telemetry.New()
	remove, err = to.Register(m)
	return m, remove, err
}

// reportConnection tells the meter whether the app is connected, until stop is called.
func reportConnection(m *telemetry.Meter, b *server.Backend) (stop func()) {
	return m.Watch(func(g *telemetry.States) {
		connected := 0.0
		if b.Connected() {
			connected = 1
		}
		g.Set(telemetry.ServerConnected, connected)
	})
}
