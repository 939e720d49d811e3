package mutants

func remoteTest(run string) [][]string { return [][]string{{"./internal/remote", "-run", run}} }

// connections are bugs of the native protocol: a change that is made twice or lost, a tenant or a
// credential that does not count, rows that are removed before they are saved.
var connections = []mutant{
	{
		name:  "a worker forgets a run whose end the engine has not taken",
		file:  "internal/remote/role_workflows.go",
		old:   "	if t.Blocked != nil {\n		r.drop(t.Run, local)",
		new:   "	if t.Blocked != nil || t.Close != nil {\n		r.drop(t.Run, local)",
		tests: remoteTest("TestNewsAfterTheEndOfARun$"),
	},
	{
		name:  "a server forgets a run whose end the engine has not taken",
		file:  "internal/grpcapi/role_workflows.go",
		old:   "	if t.Blocked != nil {\n		r.mu.Lock()",
		new:   "	if t.Blocked != nil || t.Close != nil {\n		r.mu.Lock()",
		tests: remoteTest("TestNewsAfterTheEndOfARun$"),
	},
	{
		name:  "a signal without a request id is sent again without one",
		file:  "internal/remote/client.go",
		old:   "	r.RequestID = requestID(r.RequestID)\n	return tell(ctx, b, b.client.Signal, wire.SignalRequest(r))",
		new:   "	return tell(ctx, b, b.client.Signal, wire.SignalRequest(r))",
		tests: remoteTest("TestLostAnswers$"),
	},
	{
		name:  "a repeated start says that the execution was there before",
		file:  "internal/remote/client.go",
		old:   "err == nil && reply.Existing && tries > 1",
		new:   "err == nil && reply.Existing && tries < 1",
		tests: remoteTest("TestLostAnswers$"),
	},
	{
		name:  "a brief call is sent again after it may have been made",
		file:  "internal/remote/client.go",
		old:   "askOnce(b.client.Call, wire.ReadValueReply)",
		new:   "ask(b.client.Call, wire.ReadValueReply)",
		tests: remoteTest("TestLostAnswersOfCallsThatAreMadeOnce$"),
	},
	{
		name:  "a call that was never sent is not sent again",
		file:  "internal/remote/call.go",
		old:   "case !unreachable(err) || once && sent:",
		new:   "case !unreachable(err) || once && (sent || true):",
		tests: remoteTest("TestServerRestarts$"),
	},
	{
		name:  "an answer that the engine is not available counts as no answer",
		file:  "internal/remote/call.go",
		old:   "if _, answered := d.(*pb.ErrorDetail); answered {",
		new:   "if _, answered := d.(*pb.ErrorDetail); answered && false {",
		tests: remoteTest("TestUnavailableEngine$"),
	},
	{
		name:  "a history that breaks off is continued behind what came before",
		file:  "internal/remote/streams.go",
		old:   "		out = zero\n",
		new:   "		_ = zero\n",
		tests: remoteTest("TestStreamThatBreaks$"),
	},
	{
		name:  "a request for another tenant goes to the tenant of the connection",
		file:  "internal/remote/backend.go",
		old:   "if t != b.tenant {",
		new:   "if false {",
		tests: remoteTest("TestRequestsThatCannotTravel$"),
	},
	{
		name:  "a removal by force does not wait until the rows are saved",
		file:  "internal/grpcapi/clientstreams.go",
		old:   "	answer, err := w.stream.Recv()\n",
		new:   "	answer, err := &pb.DeleteRequest{RowsSaved: true}, error(nil)\n",
		tests: remoteTest("TestExportThatCannotBeSaved$"),
	},
	{
		name:  "a message of a client has fields that only the engine may set",
		file:  "internal/grpcapi/deliver.go",
		old:   "if !bytes.Equal(model.AppendMessage(nil, &composed), model.AppendMessage(nil, m)) {",
		new:   "if bytes.Equal(nil, model.AppendMessage(nil, m)) {",
		tests: remoteTest("TestDeliver$"),
	},
	{
		name:  "a message for another tenant is delivered",
		file:  "internal/grpcapi/deliver.go",
		old:   "message.To.Tenant != tenantOf(ctx)",
		new:   "message.To.Tenant == \"\"",
		tests: [][]string{{"./internal/grpcapi", "-run", "TestForeignMessage$"}},
	},
	{
		name:  "calls are not authenticated when their headers arrive, and have no tenant",
		file:  "internal/grpcapi/caller.go",
		old:   "	if open[info.FullMethodName] {\n		return ctx, nil\n	}\n	ctx, err := s.authenticate(ctx, info.Header)",
		new:   "	if true {\n		return withCaller(ctx, Caller{Tenant: \"default\"}), nil\n	}\n	ctx, err := s.authenticate(ctx, info.Header)",
		tests: [][]string{{"./internal/grpcapi", "-run", "TestCallsWithoutCredential$"}},
	},
}
