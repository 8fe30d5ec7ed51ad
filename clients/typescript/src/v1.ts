/** The messages and services of the API, `cofferdam.v1`. Generated from `proto/`, which says what each field means. */

export * from "./proto/cofferdam/v1/alert_pb.js";
export * from "./proto/cofferdam/v1/approval_pb.js";
export * from "./proto/cofferdam/v1/audit_pb.js";
export * from "./proto/cofferdam/v1/base_pb.js";
export * from "./proto/cofferdam/v1/bundle_pb.js";
export * from "./proto/cofferdam/v1/checkpoint_pb.js";
export * from "./proto/cofferdam/v1/egress_pb.js";
export * from "./proto/cofferdam/v1/explain_pb.js";
export * from "./proto/cofferdam/v1/file_pb.js";
export * from "./proto/cofferdam/v1/forward_pb.js";
export * from "./proto/cofferdam/v1/host_pb.js";
export * from "./proto/cofferdam/v1/image_pb.js";
export * from "./proto/cofferdam/v1/limit_pb.js";
export * from "./proto/cofferdam/v1/mcp_pb.js";
export * from "./proto/cofferdam/v1/operation_pb.js";
export * from "./proto/cofferdam/v1/permission_pb.js";
export * from "./proto/cofferdam/v1/policy_pb.js";
export * from "./proto/cofferdam/v1/process_pb.js";
export * from "./proto/cofferdam/v1/query_pb.js";
export * from "./proto/cofferdam/v1/run_pb.js";
export * from "./proto/cofferdam/v1/session_pb.js";
export * from "./proto/cofferdam/v1/terminal_pb.js";
export * from "./proto/cofferdam/v1/token_pb.js";
export * from "./proto/cofferdam/v1/tool_pb.js";
export * from "./proto/cofferdam/v1/transcript_pb.js";
export * from "./proto/cofferdam/v1/trash_pb.js";
