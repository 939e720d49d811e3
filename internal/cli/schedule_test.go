package cli_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// Commands about schedules are answered by the nodes of a database; the command line owns nothing there.
func TestSchedulesBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	yearly := perdure.NewSchedule("yearly", perdure.Cron("@yearly", ""), shop.Job("lamp"))
	app, err := embedded.Config{AllowUnsafe: true, Name: "shop"}.Open(t.Context(), url, shop, yearly)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list --app shop", 0, "yearly"},
		{"show yearly", 0, "@yearly UTC"},
		{"show monthly", 3, "no schedule monthly"},
		{"trigger yearly", 0, "triggered: yearly@"},
		{"trigger yearly -o json", 0, `"key": "yearly@`},
		{"pause yearly --reason inventory", 0, "paused: yearly"},
		{"show yearly", 0, "paused: inventory"},
		{"resume yearly", 0, "resumed: yearly"},
		{"backfill yearly --from 2020-01-01T00:00:00Z --to 2023-01-01T00:00:00Z", 0, "backfill of 3: yearly"},
		{"backfill yearly --from 2023-01-01T00:00:00Z --to 2020-01-01T00:00:00Z", 2, "is not before"},
		{"next yearly -n 1 -o json", 0, "-01-01T00:00:00Z"},
		{"next yearly -n 0", 2, "from 1 to 1000"},
		{"delete yearly", 0, "deleted: yearly"},
		{"resume yearly", 3, "no schedule yearly"},
	} {
		if strings.HasPrefix(c.args, "trigger") || strings.HasPrefix(c.args, "backfill") {
			idle(t, app, yearly)
		}
		out, complaints, code := perdureOn(t, url, append([]string{"schedule"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out+complaints, c.want) {
			t.Errorf("perdure schedule %s: exit %d, %s%s\nwant exit %d, %q", c.args, code, out, complaints, c.code, c.want)
		}
	}
}

// idle waits until nothing that the schedule has begun is open.
func idle(t *testing.T, app *perdure.App, s *perdure.Schedule) {
	t.Helper()
	for {
		info, err := s.Describe(app.With(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Open) == 0 {
			return
		}
	}
}
