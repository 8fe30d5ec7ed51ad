// Shows a run's token with every request: the suite has no option for that. Both its own requests and those of the official
// client that it uses go through undici's global dispatcher.
const { Agent, setGlobalDispatcher } = require(require.resolve('undici', { paths: [process.env.CONFORMANCE_MODULES ?? ''] }));

type Headers = string[] | Iterable<[string, string]> | Record<string, string> | null | undefined;
type Request = { headers?: Headers };
type Dispatch = (options: Request, handler: unknown) => boolean;

const token = `Bearer ${process.env.COFFERDAM_TOKEN}`;

function withToken(headers: Headers): Headers {
  if (Array.isArray(headers)) return [...headers, 'authorization', token];
  if (headers && typeof headers[Symbol.iterator] === 'function') {
    return [...[...(headers as Iterable<[string, string]>)].flat(), 'authorization', token];
  }
  return { ...(headers as Record<string, string>), authorization: token };
}

setGlobalDispatcher(
  new Agent().compose(
    (dispatch: Dispatch): Dispatch =>
      (options, handler) =>
        dispatch({ ...options, headers: withToken(options.headers) }, handler),
  ),
);
