BEGIN TRANSACTION;
CREATE TABLE datasets (
	name VARCHAR(100) NOT NULL, 
	epsilon TEXT NOT NULL, 
	delta TEXT NOT NULL, 
	rho TEXT NOT NULL, 
	created TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "datasets" VALUES('people','2.0','1e-09','5613050179/100000000000','2026-11-21T11:41:58.755260+00:00');
CREATE TABLE entries (
	id INTEGER NOT NULL, 
	dataset VARCHAR(100) NOT NULL, 
	run TEXT NOT NULL, 
	step TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	event VARCHAR(10) NOT NULL, 
	rho TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	created TEXT NOT NULL, 
	prev_hash VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT known_event CHECK (event IN ('reserve', 'spent', 'abandon', 'cancel')), 
	FOREIGN KEY(dataset) REFERENCES datasets (name)
);
INSERT INTO "entries" VALUES(1,'people','people-3de898c8','one_way_marginals','ed37e97cacc1ca07d09512db21e25abc941f9ccd3cb93b967273c98fdf1b03f7','reserve','4491917301/1000000000000','{"accountant":"tight","mechanism":"discrete Gaussian","neighbours":"add or remove one person","release_delta":"1e-09","release_epsilon":"1.0","title":"One-way marginals","unit":"one person with one record (declared in the spec)"}','2026-11-21T11:41:58.777643+00:00','0000000000000000000000000000000000000000000000000000000000000000','e051e669796ba01781aad6eb2f05d7b823be5f8684b04fe88de0c36c9248a840');
INSERT INTO "entries" VALUES(2,'people','people-3de898c8','indif_scores','23f6b8fbaf5a351cf875e4c400ed780d17d0320ff72c26ba24fd504cdf3e9793','reserve','1497305767/2000000000000','{"accountant":"tight","mechanism":"discrete Gaussian","neighbours":"add or remove one person","release_delta":"1e-09","release_epsilon":"1.0","title":"InDif scores","unit":"one person with one record (declared in the spec)"}','2026-11-21T11:41:58.784648+00:00','e051e669796ba01781aad6eb2f05d7b823be5f8684b04fe88de0c36c9248a840','9fcee6b80486b02529b09c4d40dce86739953ab76e7232bcf6ec6dca72ac3d65');
INSERT INTO "entries" VALUES(3,'people','people-3de898c8','measure_marginals','5b273b4169f9ffe21becbcf98348df794750cb2aec7d4ed1fbc49990f4984a31','reserve','19464974971/2000000000000','{"accountant":"tight","mechanism":"discrete Gaussian","neighbours":"add or remove one person","release_delta":"1e-09","release_epsilon":"1.0","title":"Measure marginals","unit":"one person with one record (declared in the spec)"}','2026-11-21T11:41:58.785513+00:00','9fcee6b80486b02529b09c4d40dce86739953ab76e7232bcf6ec6dca72ac3d65','7d4b877cd77c44232d5018a053db3ce641af9a6045a46abef6c490b123250b46');
INSERT INTO "entries" VALUES(4,'people','people-3de898c8','one_way_marginals','ed37e97cacc1ca07d09512db21e25abc941f9ccd3cb93b967273c98fdf1b03f7','spent','4491917301/1000000000000','{}','2026-11-21T11:42:17.193232+00:00','7d4b877cd77c44232d5018a053db3ce641af9a6045a46abef6c490b123250b46','93b3eb1c3b2a1b13c45d87410526f667118cbfbd2383a21b2fbe9deeb6e4c133');
INSERT INTO "entries" VALUES(5,'people','people-3de898c8','indif_scores','23f6b8fbaf5a351cf875e4c400ed780d17d0320ff72c26ba24fd504cdf3e9793','spent','1497305767/2000000000000','{}','2026-11-21T11:42:21.028756+00:00','93b3eb1c3b2a1b13c45d87410526f667118cbfbd2383a21b2fbe9deeb6e4c133','c8caf91fe0b440712587d2dcb4ec7bff4b775388a2e4ca7d0fb630201d365e0c');
INSERT INTO "entries" VALUES(6,'people','people-3de898c8','measure_marginals','5b273b4169f9ffe21becbcf98348df794750cb2aec7d4ed1fbc49990f4984a31','spent','19464974971/2000000000000','{}','2026-11-21T11:42:22.092285+00:00','c8caf91fe0b440712587d2dcb4ec7bff4b775388a2e4ca7d0fb630201d365e0c','5b30706e2f06e5ac7800abce9fa221b2dc4ea1379880aa9ca387cac36e8bd858');
INSERT INTO "entries" VALUES(7,'people','people-00000000','one_way_marginals','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','reserve','1/1000','{"queries":1}','2026-11-21T11:42:25.296362+00:00','5b30706e2f06e5ac7800abce9fa221b2dc4ea1379880aa9ca387cac36e8bd858','27d0ab8495f70b328e14cd58ed748be48910069ae9dcf75deeb85ecd98022066');
INSERT INTO "entries" VALUES(8,'people','people-00000000','indif_scores','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','reserve','1/1000','{}','2026-11-21T11:42:25.331687+00:00','27d0ab8495f70b328e14cd58ed748be48910069ae9dcf75deeb85ecd98022066','594700ccdf8b6a736af19b654a1b6cc2e2c0a131b85eb179aa63a9e899609525');
INSERT INTO "entries" VALUES(9,'people','people-00000000','one_way_marginals','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','abandon','1/1000','{}','2026-11-21T11:42:25.401510+00:00','594700ccdf8b6a736af19b654a1b6cc2e2c0a131b85eb179aa63a9e899609525','893e5deab11c924493376260e17bf6cd7b5502ecfe7a74b8cc4ad3967678e015');
INSERT INTO "entries" VALUES(10,'people','people-00000000','indif_scores','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','cancel','1/1000','{}','2026-11-21T11:42:25.475074+00:00','893e5deab11c924493376260e17bf6cd7b5502ecfe7a74b8cc4ad3967678e015','d9a5c2027ff7e54d850d11c589dbd643e2c3f258fd0b4142b32e8bd46517aa4c');
CREATE TABLE ledger (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	entries BIGINT NOT NULL, 
	head VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger" VALUES(1,1,10,'d9a5c2027ff7e54d850d11c589dbd643e2c3f258fd0b4142b32e8bd46517aa4c');
CREATE INDEX ix_entries_dataset ON entries (dataset);
CREATE TRIGGER datasets_no_update BEFORE UPDATE ON datasets BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER datasets_no_delete BEFORE DELETE ON datasets BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
COMMIT;
