package restapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// signIn exchanges the token of the world for a session.
func (w *world) signIn(body string) (cookie, guard, id string) {
	w.t.Helper()
	a := w.want(http.StatusCreated, `"guard"`, http.MethodPost, "/v1/session", body)
	set := a.header.Get("Set-Cookie")
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "Expires="} {
		if !strings.Contains(set, part) {
			w.t.Errorf("the cookie has no %s: %s", part, set)
		}
	}
	if strings.Contains(set, "Secure") || strings.Contains(a.body, "perdure-session_") {
		w.t.Errorf("without TLS: %s, %s", set, a.body)
	}
	cookie, _, _ = strings.Cut(set, ";")
	return cookie, a.field(w.t, "guard"), a.field(w.t, "id")
}

// become is like want, but sends no key.
//
//arch:parameters the parts of a request and of its answer
func (w *world) become(status int, text, method, path, body string, header ...string) *answer {
	w.t.Helper()
	was := w.token
	w.token = ""
	defer func() { w.token = was }()
	return w.want(status, text, method, path, body, header...)
}

// A session gives its caller the rights of the key, but only from pages of the server. It ends when
// the key ends, when its caller signs out, when an admin ends it, and when it expires.
func TestSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	w.want(201, "", post, "/v1/tenants", `{"name":"acme"}`)
	w.want(201, "", post, "/v1/tenants", `{"name":"other"}`)
	k := w.key("acme", "client")
	w.token = k.Secret
	cookie, guard, id := w.signIn("")

	me := w.become(200, `"session":"`+id+`"`, get, "/v1/me", "", "Cookie", cookie)
	for _, part := range []string{`"tenant":"acme"`, `"roles":["client"]`, `"tenants":["acme"]`, `"execution:start"`, `"expires":`} {
		if !strings.Contains(me.body, part) {
			t.Errorf("%s is not in %s", part, me.body)
		}
	}
	w.become(200, guard, get, "/v1/session", "", "Cookie", cookie)
	w.want(404, "no session", get, "/v1/session", "")
	const start = `{"workflow":"order","key":"1"}`
	w.become(403, "needs the guard", post, "/v1/executions", start, "Cookie", cookie)
	w.become(403, "needs the guard", post, "/v1/executions", start, "Cookie", cookie, "Perdure-Guard", "x"+guard)
	w.become(403, "another site", post, "/v1/executions", start, "Cookie", cookie, "Perdure-Guard", guard, "Sec-Fetch-Site", "cross-site")
	w.become(201, "", post, "/v1/executions", start, "Cookie", cookie, "Perdure-Guard", guard)
	w.become(403, "needs an admin key", get, "/v1/tenants", "", "Cookie", cookie)
	w.become(403, "choose the tenant", get, "/v1/executions", "", "Cookie", cookie, "Perdure-Tenant", "other")
	w.become(400, "present a key or a token", post, "/v1/session", "", "Cookie", cookie, "Perdure-Guard", guard)

	// The server refuses anything but the exact cookie. If the request also has a key, the server
	// uses only the key.
	for _, bad := range []string{cookie + "x", cookie[:len(cookie)-1], "perdure_session=", "perdure_session=" + k.Secret, cookie + "; " + cookie, "__Host-" + cookie} {
		w.become(401, "", get, "/v1/me", "", "Cookie", bad)
	}
	for _, name := range []string{"Session", "Perdure-Session", "X:session"} {
		w.become(401, "", get, "/v1/me", "", strings.ReplaceAll(name, ":", "-"), strings.TrimPrefix(cookie, "perdure_session="))
	}
	if me := w.want(200, `"tenant":"acme"`, get, "/v1/me", "", "Cookie", "perdure_session=nonsense"); strings.Contains(me.body, `"session"`) {
		t.Error(me.body)
	}

	// An admin sees sessions without their secrets, and ends them.
	admin, adminGuard, _ := func() (string, string, string) {
		w.token = adminKey
		return w.signIn(`{"lifetime":"8h"}`)
	}()
	list := w.become(200, `"caller":"key `+k.ID+`"`, get, "/v1/sessions?tenant=acme", "", "Cookie", admin)
	if strings.Contains(list.body, cookie[16:]) || strings.Contains(list.body, guard) || strings.Contains(list.body, `"admin":true`) {
		t.Errorf("a list has a secret, or the session of another tenant: %s", list.body)
	}
	w.become(200, `"tenant":"other"`, get, "/v1/me", "", "Cookie", admin, "Perdure-Tenant", "other")
	w.become(403, "guard", del, "/v1/sessions/"+id, "", "Cookie", admin)
	w.become(204, "", del, "/v1/sessions/"+id, "", "Cookie", admin, "Perdure-Guard", adminGuard)
	w.become(401, "sign in again", get, "/v1/me", "", "Cookie", cookie)
	w.become(404, "no session", del, "/v1/sessions/"+id, "", "Cookie", admin, "Perdure-Guard", adminGuard)
	audit := w.want(200, `"call":"EndLogin"`, get, "/v1/audit?action=login&limit=100", "")
	if !strings.Contains(audit.body, `"call":"CreateLogin"`) || strings.Contains(audit.body, "perdure-session_") || strings.Contains(audit.body, adminGuard) {
		t.Error(audit.body)
	}
	if settings := w.want(200, "", get, "/v1/tenants/acme/settings", ""); strings.Contains(settings.body, "login") {
		t.Error(settings.body)
	}

	// A session ends when its key ends, when it expires, and when its caller signs out.
	w.token = k.Secret
	cookie, _, _ = w.signIn("")
	short, _, _ := w.signIn(`{"lifetime":"1ms"}`)
	for w.statusWith("/v1/me", short) != http.StatusUnauthorized {
		time.Sleep(time.Millisecond)
	}
	w.want(400, "must be between", post, "/v1/session", `{"lifetime":"1000h"}`)
	if err := w.admin.RevokeKey(w.ctx, k.ID); err != nil {
		t.Fatal(err)
	}
	w.become(401, "", get, "/v1/me", "", "Cookie", cookie)
	out := w.become(204, "", del, "/v1/session", "", "Cookie", admin, "Perdure-Guard", adminGuard)
	if set := out.header.Get("Set-Cookie"); !strings.HasPrefix(set, "perdure_session=;") || !strings.Contains(set, "Max-Age=0") {
		t.Errorf("signing out sets %q", set)
	}
	w.become(401, "", get, "/v1/me", "", "Cookie", admin)
}

// statusWith returns the status of a request with a cookie.
func (w *world) statusWith(path, cookie string) int {
	w.t.Helper()
	was := w.token
	w.token = ""
	defer func() { w.token = was }()
	return w.send(http.MethodGet, path, "", "Cookie", cookie).status
}

// All nodes accept a session, even a node that starts later, and all nodes learn when it has ended.
func TestSessionsOfAllNodes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	a, b := newWorldOn(t, url, nil), newWorldOn(t, url, nil)
	cookie, _, id := a.signIn("")
	until := func(w *world, status int) {
		t.Helper()
		for w.statusWith("/v1/me", cookie) != status {
			if w.ctx.Err() != nil {
				t.Fatalf("the status is not %d", status)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	until(b, http.StatusOK)
	c := newWorldOn(t, url, nil)
	if got := c.statusWith("/v1/me", cookie); got != http.StatusOK {
		t.Errorf("a node that started later: %d", got)
	}

	c.want(http.StatusNoContent, "", http.MethodDelete, "/v1/sessions/"+id, "")
	for _, w := range []*world{a, b, c} {
		until(w, http.StatusUnauthorized)
	}
}
