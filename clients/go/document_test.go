package perdurerest_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The documents of the REST API are valid, in OpenAPI 3.1 and in OpenAPI 3.0. clients/typescript
// checks them with another validator.
func TestDocumentsAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"openapi.json", "openapi-3.0.json"} {
		text, err := os.ReadFile("../../internal/restapi/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(t, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		// The check also finds mistakes: it refuses a document without a required field.
		for _, part := range []string{`"title": "Perdure"`, `"in": "path"`} {
			broken := bytes.Replace(text, []byte(part), []byte(`"x-`+part[1:]), 1)
			if bytes.Equal(broken, text) || check(t, broken) == nil {
				t.Errorf("%s without %s is valid", name, part)
			}
		}
	}
}

// check returns what is wrong with a document.
func check(t *testing.T, text []byte) error {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return err
	}
	return document.Validate(t.Context())
}
