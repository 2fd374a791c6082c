"""What the table of LTS's trained models says; nothing is trained or timed."""


def tables(machine):
    """LTS's Figures 3, 6, 11 and 12: proxies against perplexity, and how far the frontier by proxy is from the true one."""
    def proxies():
        found = machine.lathe("proxies", "audit", "--table", machine.args.tables, "--proxies", "decoder_params,total_params")
        return found["tables"]
    yield "proxies", proxies
    yield "frontiers", lambda: machine.lathe("search", "compare", "--tables", machine.args.tables)["devices"]


GROUPS = {"tables": tables}
