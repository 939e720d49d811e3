// Package perdurerest is a client of the REST API of Perdure. It is generated from the OpenAPI
// document of the server, so it has one method per operation. It imports no other package of
// Perdure.
//
//	key, err := perdurerest.WithKey("perdure_…")
//	client, err := perdurerest.NewClientWithResponses("http://localhost:7800", key)
//	reply, err := client.ListExecutionsWithResponse(ctx, nil)
//
// Programs in Go normally use package perdure instead, which also runs workflows.
package perdurerest
