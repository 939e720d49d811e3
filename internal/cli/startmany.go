package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of one call of `workflow start --many`, and of a line of its file.
const (
	manyLines = 1000
	manyBytes = 4 << 20
	manyLine  = 16 << 20
)

// startLine is one line of a file of starts.
type startLine struct {
	Workflow         string            `json:"workflow"`
	Key              string            `json:"key"`
	Input            json.RawMessage   `json:"input"`
	Labels           map[string]string `json:"labels"`
	RequestID        string            `json:"request_id"`
	StartDelay       string            `json:"start_delay"`
	StartAt          string            `json:"start_at"`
	ExecutionTimeout string            `json:"execution_timeout"`
	Attempts         int               `json:"attempts"`
}

// manyResult is how it went; lines that were refused are named beside it.
type manyResult struct {
	Started  int `json:"started"`
	Existing int `json:"existing"`
	Refused  int `json:"refused"`
}

// startMany starts an execution for each line of a file. Lines go to the engine in calls of bounded
// size, and each call is committed before the next line is read.
func (o *options) startMany(ctx context.Context, b api.Backend, name, workflow string, base api.StartRequest, each time.Duration) error {
	in, err := o.lines(name)
	if err != nil {
		return err
	}
	defer in.Close()
	var (
		total    manyResult
		requests []api.StartRequest
		places   []int
		size     int
	)

	refuse := func(line int, err error) {
		total.Refused++
		fmt.Fprintf(o.Err, "line %d: %v\n", line, err)
	}

	flush := func() error {
		if len(requests) == 0 {
			return nil
		}
		replies, err := within(ctx, each, requests, b.StartMany)
		if err != nil {
			return fault.New(fault.KindOf(err), "lines %d to %d, which may have begun in part (repeat the command: a key begins once): %w", places[0], places[len(places)-1], err)
		}

		for i := range replies {
			switch r := &replies[i]; {
			case r.Err != nil:
				refuse(places[i], r.Err)
			case r.Existing:
				total.Existing++
			default:
				total.Started++
			}
		}

		requests, places, size = requests[:0], places[:0], 0
		if o.output != "json" {
			fmt.Fprintf(o.Err, "%d started, %d existed, %d refused\n", total.Started, total.Existing, total.Refused)
		}
		return nil
	}

	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 0, 64<<10), manyLine)
	for n := 1; scan.Scan(); n++ {
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		r, err := startOf(text, workflow, base)
		if err != nil {
			refuse(n, err)
			continue
		}
		requests, places, size = append(requests, r), append(places, n), size+r.Input.Size()
		if len(requests) == manyLines || size >= manyBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}

	if err := errors.Join(scan.Err(), flush()); err != nil {
		return err
	}

	if o.output == "json" {
		err = o.json(total)
	} else {
		_, err = fmt.Fprintf(o.Out, "started %d executions; %d existed already, %d lines were refused\n", total.Started, total.Existing, total.Refused)
	}

	if err == nil && total.Refused > 0 {
		return fault.New(fault.Invalid, "%d lines were refused: see above", total.Refused)
	}
	return err
}

// lines opens a file, or standard input.
func (o *options) lines(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(o.In), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--many: %w", err)
	}
	return f, nil
}

// startOf is the request of a line; what it does not say is as the flags have it.
func startOf(text []byte, workflow string, base api.StartRequest) (r api.StartRequest, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var l startLine
	if err := d.Decode(&l); err != nil {
		return r, fault.New(fault.Invalid, `want JSON such as {"key":"k-1","input":5}: %w`, err)
	}
	if l.Workflow == "" {
		l.Workflow = workflow
	}
	if l.Workflow == "" {
		return r, fault.New(fault.Invalid, "it names no workflow, and neither does the command")
	}

	r = base
	if len(l.Input) == 0 {
		l.Input = json.RawMessage("null")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, l.Input); err != nil {
		return r, fault.New(fault.Invalid, "its input is not JSON: %w", err)
	}

	r.Input = model.Payload{Data: compact.Bytes()}
	if l.Key == "" {
		l.Key = perdure.HashKey(json.RawMessage(r.Input.Data)).String()
	}
	r.Address = model.Address{Tenant: model.DefaultTenant, Type: l.Workflow, Key: l.Key}
	r.RequestID = l.RequestID
	if len(l.Labels) > 0 {
		r.Labels = model.Labels(l.Labels)
	}

	terms := termFlags{at: l.StartAt, attempts: l.Attempts}
	for _, t := range []struct {
		name, text string
		to         *time.Duration
	}{{"start_delay", l.StartDelay, &terms.delay}, {"execution_timeout", l.ExecutionTimeout, &terms.timeout}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = time.ParseDuration(t.text); err != nil {
			return r, fault.New(fault.Invalid, "its %s is %q: a duration such as 1h30m", t.name, t.text)
		}
	}

	own, err := terms.terms()
	if own != nil {
		r.Terms = own
	}
	return r, err
}
