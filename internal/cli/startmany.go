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

// manyResult counts the results. The command prints refused lines separately.
type manyResult struct {
	Started  int `json:"started"`
	Existing int `json:"existing"`
	Refused  int `json:"refused"`
}

// manyOrder is what the flags of start --many ask for.
type manyOrder struct {
	file     string           // - for standard input
	workflow string           // the workflow of lines that name none
	base     api.StartRequest // values for the fields that a line omits
	each     time.Duration    // time limit of one call
}

// startMany starts an execution for each line of a file. It sends the lines to the engine in calls
// of bounded size. The engine commits each call before the command reads the next line.
func (o *options) startMany(ctx context.Context, b api.Backend, r manyOrder) error {
	in, err := o.openLines(r.file)
	if err != nil {
		return err
	}
	defer in.Close()
	var (
		total    manyResult
		requests []api.StartRequest
		places   []int
		size     int
		read     int64 // bytes of the file
	)
	shown, whole := o.newProgress(), fileSize(in)
	defer shown.clear()

	refuse := func(line int, err error) {
		total.Refused++
		shown.clear()
		fmt.Fprintf(o.Err, "line %d: %v\n", line, err)
	}

	flush := func() error {
		if len(requests) == 0 {
			return nil
		}
		replies, err := within(ctx, r.each, requests, b.StartMany)
		if err != nil {
			return fault.New(fault.KindOf(err), "lines %d to %d may have started in part; repeat the command, because a key starts only once: %w", places[0], places[len(places)-1], err)
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
		switch text := fmt.Sprintf("%d started, %d existed, %d refused", total.Started, total.Existing, total.Refused); {
		case o.ErrWidth > 0:
			shown.tell(read, whole, text)
		case !o.structured():
			fmt.Fprintln(o.Err, text)
		}
		return nil
	}

	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 0, 64<<10), manyLine)
	for n := 1; scan.Scan(); n++ {
		read += int64(len(scan.Bytes())) + 1
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		start, err := startOf(text, r.workflow, r.base)
		if err != nil {
			refuse(n, err)
			continue
		}
		requests, places, size = append(requests, start), append(places, n), size+start.Input.Size()
		if len(requests) == manyLines || size >= manyBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}

	if err := errors.Join(scan.Err(), flush()); err != nil {
		return err
	}

	shown.clear()
	if o.structured() {
		err = o.json(total)
	} else {
		_, err = fmt.Fprintf(o.Out, "started %d executions; %d existed already, %d lines were refused\n", total.Started, total.Existing, total.Refused)
	}

	if err == nil && total.Refused > 0 {
		return fault.New(fault.Invalid, "%d lines were refused; the messages above say why", total.Refused)
	}
	return err
}

// openLines opens a file, or standard input.
func (o *options) openLines(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(o.In), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--many: %w", err)
	}
	return f, nil
}

// fileSize returns the size of a regular file; 0 for anything else.
func fileSize(in io.Reader) int64 {
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	}
	return 0
}

// startOf returns the request of a line. The flags fill in the fields that the line omits.
func startOf(text []byte, workflow string, base api.StartRequest) (r api.StartRequest, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var l startLine
	if err := d.Decode(&l); err != nil {
		return r, fault.New(fault.Invalid, `must be JSON such as {"key":"k-1","input":5}: %w`, err)
	}
	if l.Workflow == "" {
		l.Workflow = workflow
	}
	if l.Workflow == "" {
		return r, fault.New(fault.Invalid, "the workflow is missing: name it in the line or in the command")
	}

	if err := api.CheckWorkflowName(l.Workflow); err != nil {
		return r, err
	}

	r = base
	if len(l.Input) == 0 {
		l.Input = json.RawMessage("null")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, l.Input); err != nil {
		return r, fault.New(fault.Invalid, "the input is not JSON: %w", err)
	}
	if err := api.CheckText(text); err != nil {
		return r, fault.New(fault.Invalid, "the line is not JSON: %w", err)
	}

	r.Input = model.Payload{Data: compact.Bytes()}
	if l.Key == "" {
		l.Key = perdure.HashKey(json.RawMessage(r.Input.Data)).String()
	}
	r.Address.Type, r.Address.Key = l.Workflow, l.Key
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
			return r, fault.New(fault.Invalid, "%s is %q, must be a duration such as 1h30m", t.name, t.text)
		}
	}

	own, err := terms.terms()
	if own != nil {
		r.Terms = own
	}
	return r, err
}
