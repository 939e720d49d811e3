package service

import "github.com/perdure/perdure/internal/request"

// Limits bounds the sizes of requests. A zero field selects its default.
type Limits = request.Limits

// validator collects everything that is wrong with a request.
type validator struct{ *request.Validator }

func (s *Service) check(op string) validator { return validator{s.limits.Check(op)} }
