package restapi

import "github.com/danielgtaylor/huma/v2"

// OpenAPI returns the document of the server, for tests that compare answers with it.
func (s *Server) OpenAPI() *huma.OpenAPI { return s.api.OpenAPI() }
