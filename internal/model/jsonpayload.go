package model

import (
	"encoding/json"
	"unicode/utf8"
)

// JSONPayload writes a stored payload inside JSON. JSON is written as it is. Text is written as
// text, so that a search finds references to blobs in it. Everything else is base64.
type JSONPayload struct{ Payload }

type payloadForm struct {
	JSON     json.RawMessage `json:"json,omitempty"`
	Text     string          `json:"text,omitempty"`
	Bytes    []byte          `json:"bytes,omitempty"`
	Encoding string          `json:"encoding,omitempty"`
}

// IsZero reports whether there is no payload.
func (p JSONPayload) IsZero() bool { return len(p.Data) == 0 && p.Encoding == "" }

// MarshalJSON writes the payload as JSON, as text or as base64, whichever fits first.
func (p JSONPayload) MarshalJSON() ([]byte, error) {
	f := payloadForm{Encoding: p.Encoding}
	switch {
	case p.Encoding == JSON && json.Valid(p.Data):
		f.JSON = json.RawMessage(p.Data)
	case utf8.Valid(p.Data):
		f.Text = string(p.Data)
	default:
		f.Bytes = p.Data
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads all forms that MarshalJSON writes.
func (p *JSONPayload) UnmarshalJSON(data []byte) error {
	var f payloadForm
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	p.Encoding = f.Encoding
	switch {
	case f.JSON != nil:
		p.Data = f.JSON
	case f.Text != "":
		p.Data = []byte(f.Text)
	default:
		p.Data = f.Bytes
	}
	return nil
}
