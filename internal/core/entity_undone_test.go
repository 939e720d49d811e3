package core_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// A worker made a call on a version of the entity whose commit then failed. The entity has reached
// the same version number again, this time with a lock. The entity does not apply the result of the
// call, because the section of another run holds the lock (L24).
func TestResultOfAVersionThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	to := model.Address{Tenant: "default", Type: "entity:account", Key: "a"}
	holder := model.Link{Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: model.RunID{1}, ID: "lock"}
	result := &model.Operated{Results: []model.OperationResult{{}}, Changed: true, Exists: true}
	for _, locked := range []bool{false, true} {
		n := &core.Entity{Row: model.Entity{Address: to, Version: 3}}
		if locked {
			n.Row.Holder = holder
		}
		items := []*core.Item{{Message: &model.Message{Kind: model.MessageCall, To: to}}}
		if _, ok := n.Apply(items, result, 3, 1); ok == locked {
			t.Errorf("applied %v, locked by another section %v", ok, locked)
		}
	}
}
