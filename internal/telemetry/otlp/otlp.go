// Package otlp sends the metrics of a meter and the spans of a node to an OpenTelemetry collector.
// It reads the standard OTEL_* environment variables, as the OpenTelemetry SDK defines them. It is
// a separate package so that only the server links the exporters.
package otlp

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/telemetry"
)

// Config says what to export and where.
type Config struct {
	// Endpoint is the URL of the collector. If it is empty, the exporter uses the URL in the
	// environment.
	Endpoint string
	// Version is the version of the program.
	Version string
	Meter   *telemetry.Meter
	Log     *slog.Logger
}

// Exporter exports until Close.
type Exporter struct {
	spans  *sdktrace.TracerProvider
	meters *sdkmetric.MeterProvider
}

// Wanted reports whether an endpoint is given, or the environment asks for an export.
func Wanted(endpoint string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		endpoint += os.Getenv(name)
	}
	return endpoint != ""
}

// Start starts to export. It does not wait for the collector. If the collector cannot be reached,
// the exporter logs that and continues.
func Start(ctx context.Context, cfg Config) (*Exporter, error) {
	if cfg.Endpoint != "" && !strings.HasPrefix(cfg.Endpoint, "http://") && !strings.HasPrefix(cfg.Endpoint, "https://") {
		return nil, fault.New(fault.Invalid, "%q is not the URL of a collector, such as http://localhost:4318", cfg.Endpoint)
	}
	of, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "perdure"), attribute.String("service.version", cfg.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fault.New(fault.Invalid, "describe this process to the collector: %w", err)
	}

	e := &Exporter{}
	if err := e.startSpans(ctx, cfg, of); err != nil {
		return nil, err
	}
	if err := e.startMetrics(ctx, cfg, of); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	otel.SetErrorHandler(&complaints{log: cfg.Log})
	return e, nil
}

func (e *Exporter) startSpans(ctx context.Context, cfg Config, of *resource.Resource) error {
	protocol, wanted, err := choose("TRACES")
	if err != nil || !wanted {
		return err
	}
	var to sdktrace.SpanExporter

	if protocol == grpcProtocol {
		var options []otlptracegrpc.Option
		if cfg.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(cfg.Endpoint))
		}
		to, err = otlptracegrpc.New(ctx, options...)
	} else {
		var options []otlptracehttp.Option
		if cfg.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(cfg.Endpoint, "/")+"/v1/traces"))
		}
		to, err = otlptracehttp.New(ctx, options...)
	}

	if err != nil {
		return fault.New(fault.Invalid, "export spans: %w", err)
	}
	e.spans = sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithResource(of))
	return nil
}

func (e *Exporter) startMetrics(ctx context.Context, cfg Config, of *resource.Resource) error {
	protocol, wanted, err := choose("METRICS")
	if err != nil || !wanted {
		return err
	}
	var to sdkmetric.Exporter

	if protocol == grpcProtocol {
		var options []otlpmetricgrpc.Option
		if cfg.Endpoint != "" {
			options = append(options, otlpmetricgrpc.WithEndpointURL(cfg.Endpoint))
		}
		to, err = otlpmetricgrpc.New(ctx, options...)
	} else {
		var options []otlpmetrichttp.Option
		if cfg.Endpoint != "" {
			options = append(options, otlpmetrichttp.WithEndpointURL(strings.TrimSuffix(cfg.Endpoint, "/")+"/v1/metrics"))
		}
		to, err = otlpmetrichttp.New(ctx, options...)
	}

	if err != nil {
		return fault.New(fault.Invalid, "export metrics: %w", err)
	}
	reader := sdkmetric.NewPeriodicReader(to, sdkmetric.WithProducer(&producer{meter: cfg.Meter, began: time.Now()}))
	e.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(of))

	return nil
}

// Protocols of the export.
const (
	grpcProtocol = "grpc"
	httpProtocol = "http/protobuf"
)

// choose reads from the environment which protocol a signal (metrics or traces) uses, and whether
// the signal is exported at all.
func choose(signal string) (protocol string, wanted bool, err error) {
	switch name := "OTEL_" + signal + "_EXPORTER"; os.Getenv(name) {
	case "none":
		return "", false, nil
	case "", "otlp":
	default:
		return "", false, fault.New(fault.Invalid, "$%s is %q, must be otlp or none", name, os.Getenv(name))
	}

	protocol = httpProtocol
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL"} {
		switch value := os.Getenv(name); value {
		case "":
		case grpcProtocol, httpProtocol:
			protocol = value
		default:
			return "", false, fault.New(fault.Invalid, "$%s is %q, must be %s or %s", name, value, grpcProtocol, httpProtocol)
		}
	}
	return protocol, true, nil
}

// Tracer returns the provider of spans, or nil if spans are not exported.
func (e *Exporter) Tracer() trace.TracerProvider {
	if e.spans == nil {
		return nil
	}
	return e.spans
}

// Close sends the remaining metrics and spans, until ctx ends.
func (e *Exporter) Close(ctx context.Context) error {
	var err error
	if e.spans != nil {
		err = e.spans.Shutdown(ctx)
	}
	if e.meters != nil {
		err = errors.Join(err, e.meters.Shutdown(ctx))
	}
	return err
}

// complaints logs errors of the exporters, at most one line per minute.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// Handle logs an error.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) > time.Minute {
		c.last = now
		c.log.Warn("metrics or spans cannot be exported", "error", err)
	}
}
