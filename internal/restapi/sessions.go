package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// Names of the cookie of a session. Browsers accept a cookie with the first name only over TLS, and
// send it only to the same host.
const (
	secureCookie = "__Host-perdure_session"
	plainCookie  = "perdure_session"
)

// guardHeader is the header that a page sends with requests of its session that change something.
const guardHeader = "Perdure-Guard"

// cookieName returns the name of the cookie for the connection of a request.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return secureCookie
	}
	return plainCookie
}

// sessionOf returns the secret of the session of a request. It returns an empty text if the request
// has no cookie of a session, or presents a key or a token. It also ignores the cookies of a
// request that has two of that name, because another page may have set one of them.
func sessionOf(r *http.Request) string {
	all := r.CookiesNamed(cookieName(r))
	if len(all) != 1 || r.Header.Get("Authorization") != "" {
		return ""
	}
	return all[0].Value
}

// checkGuard refuses a request of a session that changes something, unless the guard header proves
// that the request comes from a page of this server.
func checkGuard(r *http.Request, secret string) error {
	if secret == "" || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	return authn.CheckGuard(secret, r.Header.Get(guardHeader))
}

// addSessions adds the operations on sessions of browsers.
func (s *Server) addSessions() {
	add(s, operation{id: "create-session", method: http.MethodPost, path: "/session", tag: "Server", summary: "Exchange a key or a token for a session of a browser", status: http.StatusCreated}, s.createSession)
	add(s, operation{id: "get-session", method: http.MethodGet, path: "/session", tag: "Server", summary: "Read the session of the caller"}, s.ownSession)
	add(s, operation{id: "end-session", method: http.MethodDelete, path: "/session", tag: "Server", summary: "End the session of the caller", status: http.StatusNoContent}, s.endSession)
	add(s, operation{id: "list-sessions", method: http.MethodGet, path: "/sessions", tag: adminTag, summary: "List sessions of browsers"}, s.sessions)
	add(s, operation{id: "revoke-session", method: http.MethodDelete, path: "/sessions/{session}", tag: adminTag, summary: "End a session of a browser on all nodes", status: http.StatusNoContent}, s.revokeSession)
}

type createSessionInput struct {
	Body *struct {
		Lifetime string `json:"lifetime,omitempty" example:"8h" doc:"12h by default, at most 168h, and never longer than the key or the token"`
	} `required:"false"`
}

// login is a session of a browser.
type login struct {
	ID         string     `json:"id"`
	Tenant     string     `json:"tenant,omitempty" doc:"Absent for a session of an admin"`
	Admin      bool       `json:"admin"`
	Caller     string     `json:"caller" doc:"The caller that has signed in"`
	Roles      []string   `json:"roles,omitempty"`
	Credential string     `json:"credential" doc:"The credential that the caller has presented to sign in"`
	Created    *time.Time `json:"created,omitempty"`
	Expires    *time.Time `json:"expires"`
}

func loginOf(l *api.LoginInfo) login {
	return login{l.ID, l.Tenant, l.Admin, l.Caller, l.Roles, l.Credential, at(l.Created), at(l.Expires)}
}

// guarded is the session of the caller.
type guarded struct {
	ID      string     `json:"id"`
	Expires *time.Time `json:"expires"`
	Guard   string     `json:"guard" doc:"The value of the header Perdure-Guard, which every request that changes something must have"`
}

type sessionOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      guarded
}

// cookie returns the cookie of a session. If secret is empty, the cookie makes the browser remove
// its cookie.
func cookie(r *http.Request, secret string, expires time.Time) http.Cookie {
	c := http.Cookie{Name: cookieName(r), Value: secret, Path: "/", Expires: expires, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
	if secret == "" {
		c.MaxAge = -1
	}
	return c
}

func (s *Server) createSession(ctx context.Context, who *authn.Identity, in *createSessionInput) (*sessionOutput, error) {
	c := &who.Credential
	r := api.LoginRequest{Tenant: who.Tenant, Tenants: who.Tenants, Caller: who.Name, Roles: who.Roles, Kind: c.Kind, Credential: c.ID, Ends: c.Expires}
	if who.Admin {
		r.Tenant = ""
	}
	if in.Body != nil {
		lifetime, err := readDuration("lifetime", in.Body.Lifetime)
		if err != nil {
			return nil, err
		}
		r.Lifetime = lifetime
	}

	made, err := s.config.Admin.CreateLogin(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &sessionOutput{Body: guarded{made.ID, at(made.Expires), authn.Guard(made.Secret)}}
	out.SetCookie = cookie(callOf(ctx).request, made.Secret, made.Expires.Std())
	return out, nil
}

// errNoSession is the error for a caller that has no session.
var errNoSession = fault.New(fault.NotFound, "the caller has no session: it has presented a key or a token, or nothing")

func (s *Server) ownSession(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[guarded], error) {
	if who.Credential.Kind != authn.BySession {
		return nil, errNoSession
	}
	return ok(guarded{who.Credential.ID, at(who.Credential.Expires), authn.Guard(sessionOf(callOf(ctx).request))})
}

type endedOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

func (s *Server) endSession(ctx context.Context, who *authn.Identity, _ *nothing) (*endedOutput, error) {
	if who.Credential.Kind != authn.BySession {
		return nil, errNoSession
	}
	if err := s.config.Admin.EndLogin(ctx, who.Credential.ID); err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	return &endedOutput{cookie(callOf(ctx).request, "", time.Unix(1, 0))}, nil
}

func (s *Server) sessions(ctx context.Context, _ *authn.Identity, in *sessionsInput) (*reply[page[login]], error) {
	got, err := s.config.Admin.Logins(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[login]{Items: each(got, loginOf)})
}

type revokeSessionInput struct {
	Session string `path:"session" example:"k3v9x2m7q1ab"`
}

func (s *Server) revokeSession(ctx context.Context, _ *authn.Identity, in *revokeSessionInput) (*none, error) {
	return done(s.config.Admin.EndLogin(ctx, in.Session))
}
