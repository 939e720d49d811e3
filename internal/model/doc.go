// Package model is the vocabulary of Perdure: addresses and ids, statuses, events,
// messages, turns, reasons. Values only: no behaviour beyond text forms, arithmetic
// and the stored encoding, and no import of any other package of ours.
//
// The words are those of docs/architecture.md. Whatever is stored or sent is one of
// these values, so a change here is a change of format: new fields get new CBOR keys,
// old keys are never reused, and a kind that is not known is an error, never ignored.
package model
