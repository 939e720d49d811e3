package rule

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/fault"
)

// limitForm is the JSON form of a limit, in which the engine stores it. The form is flat, and its
// rate is a text. Only MarshalJSON and UnmarshalJSON of Limit use it.
type limitForm struct {
	Name        string `json:"name"`
	Tenant      string `json:"tenant,omitempty"`
	Queue       string `json:"queue,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Per         Scope  `json:"per,omitempty"`
	Key         string `json:"key,omitempty"`
	Concurrency int    `json:"concurrency,omitempty"`
	Rate        string `json:"rate,omitempty"` // such as 100/1m
	Burst       int64  `json:"burst,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	Why         string `json:"reason,omitempty"` // why it is disabled
}

// MarshalJSON writes the form that operators edit: {"name": "mail", "queue": "mail.*",
// "concurrency": 5, "rate": "100/1m"}.
func (l Limit) MarshalJSON() ([]byte, error) {
	n := &l.Numbers
	return json.Marshal(limitForm{
		Name: l.Name, Tenant: l.Tenant, Queue: l.Queue, Kind: l.Kind, Per: l.Per, Key: l.Key,
		Concurrency: n.Concurrency, Rate: FormatRate(n.Rate, n.Per), Burst: n.Burst, Disabled: l.Disabled, Why: l.Why,
	})
}

// UnmarshalJSON reads that form. An unknown field is an error.
func (l *Limit) UnmarshalJSON(text []byte) error {
	var f limitForm
	if err := strict(text, &f, "limit"); err != nil {
		return err
	}
	n := limit.Numbers{Concurrency: f.Concurrency, Burst: f.Burst}
	if f.Rate != "" {
		var err error
		if n.Rate, n.Per, err = ParseRate(f.Rate); err != nil {
			return fault.New(fault.Invalid, "limit %s: %w", f.Name, err)
		}
	}
	*l = Limit{Name: f.Name, Tenant: f.Tenant, Queue: f.Queue, Kind: f.Kind, Per: f.Per, Key: f.Key, Numbers: n, Disabled: f.Disabled, Why: f.Why}
	return nil
}

// ParseRate reads 100/1m, 5/s or 1000/24h.
func ParseRate(text string) (n int64, per time.Duration, err error) {
	count, period, ok := strings.Cut(text, "/")
	if n, err = strconv.ParseInt(count, 10, 64); err != nil || !ok || n <= 0 {
		return 0, 0, fault.New(fault.Invalid, "rate %q: a number and a period expected, as in 100/1m", text)
	}
	if period != "" && (period[0] < '0' || period[0] > '9') {
		period = "1" + period
	}
	if per, err = time.ParseDuration(period); err != nil || per <= 0 {
		return 0, 0, fault.New(fault.Invalid, "rate %q: a number and a period expected, as in 100/1m", text)
	}
	return n, per, nil
}

// FormatRate writes a rate for ParseRate, in the short form: 100/1m and not 100/1m0s. It returns an
// empty text if there is no rate.
func FormatRate(n int64, per time.Duration) string {
	if n <= 0 {
		return ""
	}
	period := per.String()
	for _, nothing := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(period, nothing) {
			period = period[:len(period)-2]
		}
	}
	return strconv.FormatInt(n, 10) + "/" + period
}

// breakerForm is the JSON form of a breaker rule, in which the engine stores it.
type breakerForm struct {
	Tenant        string  `json:"tenant,omitempty"`
	Name          string  `json:"name,omitempty"`
	Kind          string  `json:"kind,omitempty"`
	Failures      int     `json:"failures,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	Calls         int     `json:"calls,omitempty"`
	Window        span    `json:"window,omitempty"`
	Successes     int     `json:"successes,omitempty"`
	Reset         span    `json:"reset,omitempty"`
	Probes        int     `json:"probes,omitempty"`
	Lease         span    `json:"lease,omitempty"`
	MaxRetryAfter span    `json:"max_retry_after,omitempty"`
}

// span is a duration that is written as text.
type span time.Duration

// MarshalText writes 1m30s.
func (d span) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 1m30s.
func (d *span) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = span(v)
	return err
}

// MarshalJSON writes the form that operators edit: {"kind": "charge", "failures": 5, "window":
// "1m0s"}. Ratios are fractions of 1.
func (b Breaker) MarshalJSON() ([]byte, error) {
	c := b.Config
	return json.Marshal(breakerForm{
		Tenant: b.Tenant, Name: b.Name, Kind: b.Kind, Failures: c.Failures, Ratio: float64(c.Ratio) / 1000, Calls: c.Calls, Window: span(c.Window),
		Successes: c.Successes, Reset: span(c.Reset), Probes: c.Probes, Lease: span(c.Lease), MaxRetryAfter: span(c.MaxRetryAfter),
	})
}

// UnmarshalJSON reads that form. An unknown field is an error.
func (b *Breaker) UnmarshalJSON(text []byte) error {
	var f breakerForm
	if err := strict(text, &f, "breaker"); err != nil {
		return err
	}
	ratio := f.Ratio*1000 + 0.5
	if !(f.Ratio >= 0 && f.Ratio <= 1) || f.Ratio > 0 && ratio < 1 {
		return fault.New(fault.Invalid, "breaker: ratio %v is not between 0.001 and 1", f.Ratio)
	}
	*b = Breaker{Tenant: f.Tenant, Name: f.Name, Kind: f.Kind, Config: breaker.Config{
		Failures: f.Failures, Ratio: int(ratio), Calls: f.Calls, Window: time.Duration(f.Window), Successes: f.Successes,
		Reset: time.Duration(f.Reset), Probes: f.Probes, Lease: time.Duration(f.Lease), MaxRetryAfter: time.Duration(f.MaxRetryAfter),
	}}
	return nil
}

// strict decodes JSON and refuses unknown fields.
func strict(text []byte, into any, what string) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fault.New(fault.Invalid, "%s: %w", what, err)
	}
	return nil
}
