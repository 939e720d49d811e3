package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/perdure/perdure"
)

// pairs is the state of a key-value store: JSON values by key.
type pairs map[string]json.RawMessage

type pair struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// kv is an entity that stores values.
type kv struct {
	entity *perdure.Entity[pairs]
	set    *perdure.Operation[pair, perdure.Void]
	remove *perdure.Operation[string, bool]
	clear  *perdure.Operation[perdure.Void, perdure.Void]
}

func newKV() *kv {
	e := perdure.NewEntity[pairs]("KVStore", perdure.MaxIdle(idle))
	return &kv{
		entity: e,
		set: perdure.NewOperation(e, "set", func(_ perdure.EntityCtx, s *pairs, p pair) (perdure.Void, error) {
			if *s == nil {
				*s = pairs{}
			}
			(*s)[p.Key] = p.Value
			return perdure.Void{}, nil
		}),
		remove: perdure.NewOperation(e, "delete", func(_ perdure.EntityCtx, s *pairs, key string) (bool, error) {
			_, existed := (*s)[key]
			delete(*s, key)
			return existed, nil
		}),
		clear: perdure.NewOperation(e, "clear", func(ctx perdure.EntityCtx, _ *pairs, _ perdure.Void) (perdure.Void, error) {
			ctx.Delete()
			return perdure.Void{}, nil
		}),
	}
}

func (s *kv) definitions() perdure.Group { return perdure.Group{s.entity} }

func (s *kv) routes(n *node, mux *http.ServeMux) {
	read := func(r *http.Request) (pairs, error) {
		return query(r, func() (pairs, error) {
			all, _, err := s.entity.Get(n.app.With(r.Context()), r.PathValue("id"))
			return all, err
		})
	}
	mux.Handle("GET /kv/{id}/get/{key}", answer(func(r *http.Request) (json.RawMessage, error) {
		all, err := read(r)
		value, ok := all[r.PathValue("key")]
		if err != nil || !ok {
			return nil, err // no value: the answer is null
		}
		return canonical(value)
	}))
	mux.Handle("GET /kv/{id}/keys", answer(func(r *http.Request) ([]string, error) {
		all, err := read(r)
		keys := slices.AppendSeq(make([]string, 0, len(all)), maps.Keys(all))
		slices.Sort(keys)
		return keys, err
	}))

	mux.Handle("POST /kv/{id}/set", answer(func(r *http.Request) (unit, error) {
		p, err := body[pair](r)
		if err == nil {
			p.Value, err = canonical(p.Value)
		}
		if err != nil {
			return unit{}, err
		}
		_, err = persisted(n, r, target{"KVStore", r.PathValue("id"), "set"}, func(c perdure.Client, id perdure.CallOption) (perdure.Void, error) {
			return s.set.Call(c, r.PathValue("id"), p, id)
		})
		return unit{}, err
	}))
	mux.Handle("DELETE /kv/{id}/delete/{key}", answer(func(r *http.Request) (bool, error) {
		return persisted(n, r, target{"KVStore", r.PathValue("id"), "delete"}, func(c perdure.Client, id perdure.CallOption) (bool, error) {
			return s.remove.Call(c, r.PathValue("id"), r.PathValue("key"), id)
		})
	}))
	mux.Handle("POST /kv/{id}/clear", answer(func(r *http.Request) (unit, error) {
		_, err := persisted(n, r, target{"KVStore", r.PathValue("id"), "clear"}, func(c perdure.Client, id perdure.CallOption) (perdure.Void, error) {
			return s.clear.Call(c, r.PathValue("id"), perdure.Void{}, id)
		})
		return unit{}, err
	}))
}

// canonical writes a value compactly, with sorted keys. It does not change numbers.
func canonical(value json.RawMessage) (json.RawMessage, error) {
	if value == nil {
		return nil, errors.New("the body has no value")
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return compact(v)
}
