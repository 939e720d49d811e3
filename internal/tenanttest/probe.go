package tenanttest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// patience bounds a probe, because some calls wait for something that never happens.
const patience = 30 * time.Second

// Probe makes every call in a tenant with the ids of another tenant. Each call must be refused as
// if the ids did not exist, or must work on the data of the caller's own tenant. No answer and no
// error may show data of the other tenant, and the other tenant must not change.
func Probe(t *testing.T, b api.Client, tenant, other string, theirs *IDs) {
	t.Helper()
	before := Snapshot(t, b, other, theirs)
	if !strings.Contains(before, theirs.Secret) {
		t.Fatalf("the snapshot shows no secret:\n%s", before)
	}

	for _, v := range Verbs() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answer, err := v.Ask(ctx, b, tenant, theirs)
		cancel()

		switch kind := fault.KindOf(err); {
		case err == nil && !v.Own:
			t.Errorf("%s in tenant %s with ids of %s succeeds: %s", v.Name, tenant, other, render(answer))
		case err != nil && kind != fault.NotFound && kind != fault.Invalid:
			t.Errorf("%s in tenant %s with ids of %s: %s (%v), want not_found or invalid", v.Name, tenant, other, kind, err)
		}

		text := fmt.Sprintf("%s %v", render(answer), err)
		if strings.Contains(text, theirs.Secret) || v.Lists && strings.Contains(text, theirs.Marker) {
			t.Errorf("%s in tenant %s shows something of %s: %s", v.Name, tenant, other, text)
		}
	}

	if after := Snapshot(t, b, other, theirs); after != before {
		t.Errorf("calls in tenant %s have changed %s:\n%s\nwas\n%s", tenant, other, after, before)
	}
}

// Refuse makes every call without a tenant. Each call must return an error of kind Invalid.
func Refuse(t *testing.T, b api.Client, of *IDs) {
	t.Helper()
	for _, v := range Verbs() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answer, err := v.Ask(ctx, b, "", of)
		cancel()
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "tenant") {
			t.Errorf("%s without a tenant: %s, %v; want invalid", v.Name, render(answer), err)
		}
	}
}

// render returns an answer as text, with readable payloads.
func render(answer any) string {
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Sprintf("%+v", answer) + decodedTexts(answer)
	}
	return string(data) + decodedTexts(answer)
}

// decodedTexts returns the texts in the byte slices of a value.
func decodedTexts(v any) string {
	var text strings.Builder
	var walk func(v reflect.Value, depth int)

	walk = func(v reflect.Value, depth int) {
		if depth > 12 {
			return
		}

		switch v.Kind() {
		case reflect.Slice, reflect.Array:
			if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
				text.WriteString(" " + string(v.Bytes()))
				return
			}
			for i := range v.Len() {
				walk(v.Index(i), depth+1)
			}
		case reflect.Struct:
			for _, field := range v.Fields() {
				walk(field, depth+1)
			}
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(v.Elem(), depth+1)
			}
		case reflect.String:
			text.WriteString(" " + v.String())
		default: // no text
		}
	}

	if v != nil {
		walk(reflect.ValueOf(v), 0)
	}
	return text.String()
}
