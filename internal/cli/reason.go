package cli

import "github.com/perdure/perdure/internal/model"

// reasonLine is a reason in JSON.
type reasonLine struct {
	Code    string `json:"code"`
	Text    string `json:"text"`
	Name    string `json:"name,omitempty"`
	Until   string `json:"until,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

func reasonLines(all []model.Reason) []reasonLine {
	lines := make([]reasonLine, len(all))
	for i, r := range all {
		lines[i] = reasonLine{Code: string(r.Code), Text: r.String(), Name: r.Name, Until: when(r.Until), Attempt: r.Attempt, Detail: r.Detail}
	}
	return lines
}

// failureLine is an error of user code in JSON.
type failureLine struct {
	Kind      string `json:"kind,omitempty"`
	Type      string `json:"type,omitempty"`
	Message   string `json:"message"`
	Stack     string `json:"stack,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
}

func failureLineOf(f *model.Failure) *failureLine {
	if f == nil {
		return nil
	}
	return &failureLine{f.Kind, f.Type, f.Message, f.Stack, f.Permanent}
}
