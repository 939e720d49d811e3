package wire_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// tenant is the tenant of every address that the tests make.
const tenant = "acme"

// filler sets every field of a value to something other than zero, so that the tests notice a field
// that the translation forgets.
type filler struct{ rng *rand.Rand }

// special fills values of types that allow only certain values, or that need more than a walk over
// their fields.
func (f filler) special(v reflect.Value, field string) bool {
	switch p := v.Addr().Interface().(type) {
	case *model.Status:
		*p = model.Status(1 + f.rng.IntN(int(model.LastStatus)))
	case *model.ReusePolicy:
		*p = model.ReusePolicy(1 + f.rng.IntN(2))
	case *model.ParentClosePolicy:
		*p = model.AbandonChild
	case *model.TakeVerb:
		*p = model.TakeOpen + model.TakeVerb(f.rng.IntN(4))
	case *model.ItemKind:
		*p = model.ItemToken + model.ItemKind(f.rng.IntN(4))
	case *model.EventKind:
		for *p = 0; !p.Known(); {
			*p = model.EventKind(f.rng.IntN(int(model.LastEventKind) + 1))
		}
	case *model.MessageKind:
		for *p = 0; !p.Known(); {
			*p = model.MessageKind(f.rng.IntN(int(model.LastMessageKind) + 1))
		}
	case *model.Message:
		f.walk(v)
		stored, err := model.DecodeMessage(model.AppendMessage(nil, p)) // as a store returns it
		if err != nil {
			panic(err)
		}
		*p = stored

	case *error:
		*p = &fault.Error{Kind: fault.Kind(1 + f.rng.IntN(int(fault.WrongType))), Text: f.text(), Hint: f.text()}
	case *io.Writer:
		*p = io.Discard
	default:
		return f.word(v, field)
	}
	return true
}

// word fills texts that allow only certain values.
func (f filler) word(v reflect.Value, field string) bool {
	var words []string
	switch field {
	case "Tenant":
		words = []string{tenant}
	case "SignalsRequest.Do", "MailboxRequest.Do":
		words = []string{model.MailboxList, model.MailboxShow, model.MailboxSkip, model.MailboxDrop, model.MailboxDropNamed, model.MailboxInterrupt}
	case "Limit.Per":
		words = []string{string(api.PerQueue), string(api.PerKind), "tenant", string(api.PerKey), string(api.PerName)}
	case "BreakerStatus.State":
		words = []string{"closed", "open", "half_open"}
	default:
		return false
	}
	v.SetString(words[f.rng.IntN(len(words))])
	return true
}

func (f filler) text() string {
	return fmt.Sprintf("%s-%d", []string{"a", "ä b", "\U0001f980", "x\n\"y\"", "\x1f"}[f.rng.IntN(5)], f.rng.IntN(1000))
}

// fill fills a value.
func (f filler) fill(v reflect.Value, field string) {
	if f.special(v, field) {
		return
	}
	f.walk(v)
}

func (f filler) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), "")
	case reflect.Struct:
		for field, value := range v.Fields() {
			if isSkipped(v.Type(), field.Name) {
				continue
			}
			name := field.Name
			if name != "Tenant" {
				name = v.Type().Name() + "." + name
			}
			f.fill(value, name)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+f.rng.IntN(2), 3))
		for i := range v.Len() {
			f.fill(v.Index(i), "")
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(1 + f.rng.Uint64N(255))
		}
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(f.rng.Float64() + 0.001)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + f.rng.Int64N(1<<62))
	case reflect.Int16:
		v.SetInt(-1 - f.rng.Int64N(1<<14))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + f.rng.Uint64N(255))
	default:
		panic(v.Type().String())
	}
}

// isSkipped reports whether a field is left out of messages on purpose.
func isSkipped(t reflect.Type, field string) bool {
	switch t {
	case reflect.TypeFor[model.Message](): // decided by the engine, never stored
		return field == "Drawn"
	case reflect.TypeFor[model.Offer](): // a worker of another process may not run batch jobs
		return field == "BuiltIn" || field == "Remote"
	case reflect.TypeFor[model.EntityOffer](): // the server of the worker sets this field
		return field == "Remote"
	}
	return false
}
