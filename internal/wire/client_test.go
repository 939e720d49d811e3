package wire_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// trips has, for each type of value, a function that encodes a value, decodes it and compares the
// result.
type trips map[reflect.Type]func(t *testing.T, f filler)

// add adds a type.
func add[T any, M any, P interface {
	*M
	proto.Message
}](all trips, write func(T) P, read func(string, P) (T, error), ignore ...cmp.Option) {
	all[reflect.TypeFor[T]()] = func(t *testing.T, f filler) {
		var want T
		f.fill(reflect.ValueOf(&want).Elem(), "")
		body, err := proto.Marshal(write(want))
		if err != nil {
			t.Fatalf("%T: %v", want, err)
		}

		m := P(new(M))
		if err := proto.Unmarshal(body, m); err != nil {
			t.Fatal(err)
		}
		got, err := read(tenant, m)
		if err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		if diff := cmp.Diff(want, got, append(ignore, cmpopts.EquateEmpty())...); diff != "" {
			t.Errorf("%T changed on its way (-sent +received):\n%s", want, diff)
		}
	}
}

func allTrips() trips {
	all := trips{}
	add(all, wire.Target, wire.ReadTarget)
	add(all, wire.StartRequest, wire.ReadStartRequest)
	add(all, wire.StartReply, wire.ReadStartReply)
	add(all, wire.StartManyRequest, wire.ReadStartManyRequest)
	add(all, wire.StartManyReply, wire.ReadStartManyReply)
	add(all, wire.Result, wire.ReadResult)
	add(all, wire.SignalRequest, wire.ReadSignalRequest)
	add(all, wire.SettleRequest, wire.ReadSettleRequest)
	add(all, wire.OrderRequest, wire.ReadOrderRequest)
	add(all, wire.SignalsRequest, wire.ReadSignalsRequest)
	add(all, wire.UpdateRequest, wire.ReadUpdateRequest)
	add(all, wire.QueryRequest, wire.ReadQueryRequest)
	add(all, wire.ValueReply, wire.ReadValueReply)
	add(all, wire.Description, wire.ReadDescription)
	add(all, wire.HistoryRequest, wire.ReadHistoryRequest)
	add(all, wire.HistoryPart, wire.ReadHistoryPart)
	add(all, wire.ListRequest, wire.ReadListRequest)
	add(all, wire.ListPage, wire.ReadListPage)
	add(all, wire.TallyRequest, wire.ReadTallyRequest)
	add(all, wire.TallyReply, wire.ReadTallyReply)
	add(all, wire.LimitTrial, wire.ReadLimitTrial)
	add(all, wire.ExplainRequest, wire.ReadExplainRequest)
	add(all, wire.Explanation, wire.ReadExplanation)
	add(all, wire.SeriesRequest, wire.ReadSeriesRequest)
	add(all, wire.SeriesReply, wire.ReadSeriesReply)
	add(all, wire.Reason, wire.ReadReason)

	add(all, wire.PastRequest, wire.ReadPastRequest)
	add(all, wire.PastReply, wire.ReadPastReply)
	add(all, wire.ImportRequest, wire.ReadImportRequest)
	// Messages do not contain the writer of an export, which the client keeps.
	add(all, wire.DeleteRequest, wire.ReadDeleteRequest, cmpopts.IgnoreFields(api.DeleteRequest{}, "Export"))
	add(all, wire.DeleteReply, wire.ReadDeleteReply)

	add(all, wire.BatchRequest, wire.ReadBatchRequest)
	add(all, wire.BatchTarget, wire.ReadBatchTarget)
	add(all, wire.ListBatchesRequest, wire.ReadListBatchesRequest)
	add(all, wire.Batch, wire.ReadBatch)
	add(all, wire.BatchPage, wire.ReadBatchPage)

	add(all, wire.CallRequest, wire.ReadCallRequest)
	add(all, wire.EntityInfo, wire.ReadEntityInfo)
	add(all, wire.ListEntitiesRequest, wire.ReadListEntitiesRequest)
	add(all, wire.EntityPage, wire.ReadEntityPage)
	add(all, wire.UnlockRequest, wire.ReadUnlockRequest)
	add(all, wire.EditEntityRequest, wire.ReadEditEntityRequest)
	add(all, wire.TakeItemsRequest, wire.ReadTakeItemsRequest)
	add(all, wire.ItemsPage, wire.ReadItemsPage)
	add(all, wire.SendItemsRequest, wire.ReadSendItemsRequest)
	add(all, wire.EditEntityReply, wire.ReadEditEntityReply)
	add(all, wire.MailboxRequest, wire.ReadMailboxRequest)
	add(all, wire.MailboxReply, wire.ReadMailboxReply)
	add(all, wire.DeadTaskRequest, wire.ReadDeadTaskRequest)
	add(all, wire.ListDeadRequest, wire.ReadListDeadRequest)
	// Clients do not get the digest of the input of a requeue, which only the owner compares.
	noDigest := cmp.Comparer(func(a, b model.Requeue) bool {
		a.Input, b.Input = nil, nil
		return a.Equal(b)
	})
	add(all, wire.DeadPage, wire.ReadDeadPage, noDigest)
	add(all, wire.DeadGroups, wire.ReadDeadGroups)
	add(all, wire.DeadTask, wire.ReadDeadTask, noDigest)
	add(all, wire.RequeueRequest, wire.ReadRequeueRequest)
	add(all, wire.RequeueReply, wire.ReadRequeueReply)
	add(all, wire.UndoRequeueRequest, wire.ReadUndoRequeueRequest)

	add(all, wire.TaskTarget, wire.ReadTaskTarget)
	add(all, wire.TaskStatesReply, wire.ReadTaskStatesReply)
	add(all, wire.TaskLogsRequest, wire.ReadTaskLogsRequest)
	add(all, wire.TaskLogsPage, wire.ReadTaskLogsPage)
	add(all, wire.TaskStreamRequest, wire.ReadTaskStreamRequest)
	add(all, wire.TaskStreamPage, wire.ReadTaskStreamPage)
	add(all, wire.WatchRequest, wire.ReadWatchRequest)
	add(all, wire.ChangePage, wire.ReadChangePage)
	add(all, wire.WorkerList, wire.ReadWorkerList)
	add(all, wire.QueueList, wire.ReadQueueList)
	add(all, wire.Limit, wire.ReadLimit)
	add(all, wire.LimitList, wire.ReadLimitList)
	add(all, wire.AllowanceValue, wire.ReadAllowanceValue)
	add(all, wire.BreakerRule, wire.ReadBreakerRule)
	add(all, wire.BreakerRuleList, wire.ReadBreakerRuleList)
	add(all, wire.BreakerList, wire.ReadBreakerList)
	add(all, wire.QueueStatusList, wire.ReadQueueStatusList)
	add(all, wire.View, wire.ReadView)
	add(all, wire.ViewList, wire.ReadViewList)
	add(all, wire.SetViewRequest, wire.ReadSetViewRequest)
	add(all, wire.DeleteViewRequest, wire.ReadDeleteViewRequest)
	add(all, wire.AddReplayReportRequest, wire.ReadAddReplayReportRequest)
	add(all, wire.ReplayReportRequest, wire.ReadReplayReportRequest)
	add(all, wire.ReplayReportsRequest, wire.ReadReplayReportsRequest)
	sums := cmpopts.IgnoreFields(api.ReplayReport{}, "ReplayCounts") // the reader computes them, see TestReplayReportSums
	add(all, wire.ReplayReport, wire.ReadReplayReport, sums)
	add(all, wire.ReplayReportPage, wire.ReadReplayReportPage, sums)
	add(all, wire.AddReplayReportReply, wire.ReadAddReplayReportReply, sums)
	add(all, wire.LoginList, wire.ReadLoginList)
	add(all, wire.CallerInfo, wire.ReadCallerInfo)
	add(all, wire.TenantInfo, wire.ReadTenantInfo)
	add(all, wire.TenantInfoList, wire.ReadTenantInfoList)
	add(all, wire.TenantChange, wire.ReadTenantChange)
	add(all, wire.KeyInfoList, wire.ReadKeyInfoList)
	add(all, wire.CreateKeyRequest, wire.ReadCreateKeyRequest)
	add(all, wire.RotateKeyRequest, wire.ReadRotateKeyRequest)
	add(all, wire.NewKey, wire.ReadNewKey)
	add(all, wire.Setting, wire.ReadSetting)
	add(all, wire.SettingList, wire.ReadSettingList)
	add(all, wire.SettingChange, wire.ReadSettingChange)
	add(all, wire.NodeInfoList, wire.ReadNodeInfoList)
	add(all, wire.ShardInfoList, wire.ReadShardInfoList)
	add(all, wire.DrainNodeRequest, wire.ReadDrainNodeRequest)
	add(all, wire.WorkerSessionList, wire.ReadWorkerSessionList)
	add(all, wire.DrainWorkerRequest, wire.ReadDrainWorkerRequest)
	add(all, wire.HealthReply, wire.ReadHealthReply)
	add(all, wire.AuditRequest, wire.ReadAuditRequest)
	add(all, wire.AuditPage, wire.ReadAuditPage)
	// Parts of requests that have no message of their own.
	add(all, wire.TaskSpec, wire.ReadTaskSpec)
	add(all, wire.HistoryEvent, wire.ReadHistoryEvent)
	add(all, func(c model.Claim) *pb.Claim { return wire.Claim(&c) }, wire.ReadClaim)
	return all
}

// No value is lost or changed between the two ends of a connection. The test fails if a field was
// added to internal/api and forgotten in this package.
func TestEveryFieldTravels(t *testing.T) {
	t.Parallel()
	for kind, trip := range allTrips() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5) {
				trip(t, filler{rand.New(rand.NewPCG(seed, 1))})
			}
		})
	}
}

// A message does not contain the sums of a replay report. The reader computes the sums from the
// workflows of the report.
func TestReplayReportSums(t *testing.T) {
	t.Parallel()
	want := api.ReplayReport{
		ID: model.ReportID{1}, ReplayCounts: api.ReplayCounts{Fits: 11, Mismatches: 22, Errors: 33, Absent: 44, Skipped: 55},
		Workflows: []api.ReplayWorkflow{
			{Workflow: "a", ReplayCounts: api.ReplayCounts{Fits: 1, Mismatches: 2, Errors: 3, Absent: 4, Skipped: 5}},
			{Workflow: "b", ReplayCounts: api.ReplayCounts{Fits: 10, Mismatches: 20, Errors: 30, Absent: 40, Skipped: 50}},
		},
	}
	got, err := wire.ReadReplayReport(tenant, wire.ReplayReport(want))
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	for _, id := range [][]byte{{1}, make([]byte, 17)} {
		if _, err := wire.ReadReplayReportRequest(tenant, &pb.ReplayReportRequest{Id: id}); !fault.Is(err, fault.Invalid) {
			t.Errorf("an id of %d bytes: %v", len(id), err)
		}
	}
}

// TestEveryFieldTravels covers all types that api.Client and api.Admin take and return.
func TestEveryValueOfTheInterfaceIsTried(t *testing.T) {
	t.Parallel()
	all := allTrips()
	for _, of := range []reflect.Type{reflect.TypeFor[api.Client](), reflect.TypeFor[api.Admin]()} {
		for m := range of.Methods() {
			if m.Name == "CreateLogin" {
				continue // only browsers open sessions, over REST
			}
			for _, kind := range valuesOf(m.Type) {
				if _, ok := all[kind]; !ok && !loose(kind) {
					t.Errorf("%s has a %s, which no test sends", m.Name, kind)
				}
			}
		}
	}
}

// valuesOf returns the types of parameters and results.
func valuesOf(method reflect.Type) (all []reflect.Type) {
	for in := range method.Ins() {
		all = append(all, in)
	}
	for out := range method.Outs() {
		all = append(all, out)
	}
	return all
}

// loose reports whether the test needs no entry for a type, because a translation cannot lose one
// of its fields. Such types are contexts, errors, texts, numbers, addresses, and pointers to types
// that have their own entries.
func loose(kind reflect.Type) bool {
	switch kind {
	case reflect.TypeFor[model.Address](), reflect.TypeFor[*model.Reason]():
		return true
	}
	return kind.Kind() != reflect.Struct && kind.Kind() != reflect.Slice && kind.Kind() != reflect.Pointer
}

// A text from the code of a user or from an older build may not be valid UTF-8. The server must be
// able to send such a text anyway.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	bad := "\xff\xfe"
	f := &model.Failure{Kind: bad, Type: bad, Message: bad, Stack: bad}

	d := api.Description{
		Outcome: model.Outcome{Failure: f}, Reasons: []model.Reason{{Code: model.WaitRetry, Name: bad, Detail: bad, Where: bad}}, Alive: []string{bad},
		Chain: []api.Link{{Subject: bad, Reason: model.Reason{Detail: bad}}}, Tasks: []api.Task{{Last: f, Worker: bad}},
	}
	for _, m := range []proto.Message{
		wire.Description(d), wire.DeadTask(api.DeadTask{Body: model.DeadTask{Failure: f, Failed: []model.FailedAttempt{{Worker: bad, Failure: *f}}}}),
		wire.DeadGroups([]api.DeadGroup{{Message: bad}}), wire.BreakerList([]api.BreakerStatus{{Why: bad}}),
		wire.TaskLogsPage(api.TaskLogsPage{Lines: []api.TaskLine{{Text: bad}}}), wire.ErrorDetail(fault.New(fault.Invalid, "%s", bad)),
	} {
		if _, err := proto.Marshal(m); err != nil {
			t.Errorf("%T: %v", m, err)
		}
	}
}

// ReadTurn refuses turns that no worker of Perdure would send, before the engine sees them.
func TestTurnsThatCannotBe(t *testing.T) {
	t.Parallel()
	run := make([]byte, 16)
	message := func(key string) []byte {
		return model.AppendMessage(nil, &model.Message{Kind: model.MessageStart, To: model.Address{Tenant: tenant, Type: "a", Key: key}})
	}
	command := func(c *pb.Command) *pb.Turn { return &pb.Turn{Run: run, Commands: []*pb.Command{c}} }

	record, event := uint32(model.CommandRecord), wire.Event(&model.Event{Kind: model.EventStepCompleted})
	for what, m := range map[string]*pb.Turn{
		"an id of a wrong length":    {Run: []byte{1}},
		"an end that is running":     {Run: run, Close: &pb.Close{Status: uint32(model.Running)}},
		"an end without a status":    {Run: run, Close: &pb.Close{}},
		"an end by an operator":      {Run: run, Close: &pb.Close{Status: uint32(model.Terminated)}},
		"an unknown status":          {Run: run, Close: &pb.Close{Status: 99}},
		"a status that is cut":       {Run: run, Close: &pb.Close{Status: 256 + uint32(model.Completed)}},
		"more ahead than there is":   {Run: run, Ahead: 1},
		"less than nothing ahead":    {Run: run, Ahead: -1},
		"reasons that are none":      {Run: run, Waits: []byte{0xff}},
		"a block that is none":       {Run: run, Blocked: []byte{0xff}},
		"a command without a kind":   command(&pb.Command{}),
		"an unknown command":         command(&pb.Command{Kind: 200}),
		"an unknown event":           command(&pb.Command{Kind: record, Event: &pb.Event{Kind: 255}}),
		"an event of another number": command(&pb.Command{Kind: record, Event: &pb.Event{Kind: 256 + uint32(model.EventStepCompleted)}}),
		"an unknown policy":          command(&pb.Command{Kind: record, Event: event, Reuse: 77}),
		"a message that is none":     command(&pb.Command{Kind: record, Event: event, Message: []byte{1}}),
		"terms that are none":        command(&pb.Command{Kind: record, Event: event, Terms: []byte{0xff}}),
	} {
		if got, err := wire.ReadTurn(m); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}

	if _, err := wire.ReadTurn(&pb.Turn{Run: run, Close: &pb.Close{Status: uint32(model.Continued)}, Commands: []*pb.Command{{Kind: record, Event: event, Message: message("a")}}}); err != nil {
		t.Errorf("a turn: %v", err)
	}
}
