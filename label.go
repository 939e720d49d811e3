package perdure

import (
	"github.com/perdure/perdure/internal/model"
)

type labelsOption map[string]string

// Labels are what the execution can be found by: Executions(ctx, `label.region = "eu"`). Names have 1 to 64 letters, digits, _ . and -; values have up
// to 256 bytes of text; an execution has at most 32. They go on with ContinueAsNew, and workflow code changes them with SetLabel.
//
// A start that finds the execution there does not change its labels.
func Labels(kv map[string]string) StartOption { return labelsOption(kv) }

func (l labelsOption) applyStart(o *startOptions) {
	for _, one := range model.Labels(l) {
		if err := model.CheckLabel(one.Name, one.Value); err != nil {
			o.refuse("%w", err)
		}
		if one.Value == "" {
			o.refuse("label %s has no value", one.Name)
		}
		o.labels = model.SetLabel(o.labels, one.Name, one.Value)
	}
	if n := len(o.labels); n > model.MaxLabels {
		o.refuse("an execution with %d labels: it may have %d", n, model.MaxLabels)
	}
}
