package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// View builds the message for a saved view.
func View(v api.View) *pb.View {
	return &pb.View{
		Name: v.Name, Page: v.Page, Query: v.Query, Note: text(v.Note), Display: v.Display, Owner: text(v.Owner), Created: int64(v.Created), Changed: int64(v.Changed), Version: v.Version,
	}
}

// ReadView reads a saved view.
func ReadView(_ string, v *pb.View) (api.View, error) {
	return api.View{
		Name: v.GetName(), Page: v.GetPage(), Query: v.GetQuery(), Note: v.GetNote(), Display: v.GetDisplay(), Owner: v.GetOwner(),
		Created: model.Time(v.GetCreated()), Changed: model.Time(v.GetChanged()), Version: v.GetVersion(),
	}, nil
}

// ViewList builds the message with saved views.
func ViewList(all []api.View) *pb.ViewList { return &pb.ViewList{Views: each(all, View)} }

// ReadViewList reads saved views.
func ReadViewList(tenant string, l *pb.ViewList) ([]api.View, error) {
	return readEach(tenant, l.GetViews(), ReadView)
}

// SetViewRequest builds the message that creates or replaces a view.
func SetViewRequest(c api.ViewChange) *pb.SetViewRequest {
	return &pb.SetViewRequest{View: View(c.View), Expected: c.Expected}
}

// ReadSetViewRequest reads the change of a view.
func ReadSetViewRequest(tenant string, r *pb.SetViewRequest) (api.ViewChange, error) {
	v, err := ReadView(tenant, r.GetView())
	return api.ViewChange{Tenant: tenant, View: v, Expected: r.Expected}, err
}

// DeleteViewRequest builds the message that removes a view.
func DeleteViewRequest(t api.ViewTarget) *pb.DeleteViewRequest {
	return &pb.DeleteViewRequest{Name: t.Name, Expected: t.Expected}
}

// ReadDeleteViewRequest reads which view to remove.
func ReadDeleteViewRequest(tenant string, r *pb.DeleteViewRequest) (api.ViewTarget, error) {
	return api.ViewTarget{Tenant: tenant, Name: r.GetName(), Expected: r.Expected}, nil
}
