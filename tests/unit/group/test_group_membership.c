/* Who is here: joining, suspicion, loss and return, and ranks that are taken. */
#include "tests/unit/group/cluster.h"

#include <string.h>

Test(group_membership, a_world_of_one_forms_at_once)
{
	struct cluster *cluster = cluster_new(1);
	cluster_start(cluster, 0);
	cr_assert_neq(group_generation(cluster->nodes[0].group), 0);
	assert_has(cluster_notice(&cluster->nodes[0], NOTICE_GROUP_FORMED), "1 of 1 ranks");
	cluster_free(cluster);
}

Test(group_membership, ranks_join_and_agree_on_one_generation)
{
	struct cluster *cluster = cluster_new(3);
	cluster_start(cluster, 0);
	cluster_start(cluster, 1);
	cluster_advance(cluster, 1000);
	cr_assert_eq(group_generation(cluster->nodes[0].group), 0);
	cr_assert_eq(group_peer(cluster->nodes[0].group, 1).state, PEER_JOINED);
	cr_assert_eq(group_peer(cluster->nodes[0].group, 2).state, PEER_ABSENT);
	cr_assert_eq(group_peer(cluster->nodes[0].group, 2).heard_ms_ago, UINT64_MAX);
	cluster_start(cluster, 2);
	cluster_run(cluster);
	uint64_t generation = group_generation(cluster->nodes[0].group);
	cr_assert_neq(generation, 0);
	cr_assert_eq(group_generation(cluster->nodes[1].group), generation);
	cr_assert_eq(group_generation(cluster->nodes[2].group), generation);
	cr_assert_eq(cluster->nodes[2].generation, generation, "the engine was told");
	cluster_free(cluster);
}

Test(group_membership, silence_is_suspected_then_lost_and_a_word_brings_it_back)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	struct node *node = &cluster->nodes[0];
	uint64_t generation = group_generation(node->group);
	cluster_advance(cluster, 1000);
	cluster_mute(cluster, 1, true);
	cluster_advance(cluster, 1500);
	cr_assert_eq(group_peer(node->group, 1).state, PEER_SUSPECTED);
	assert_has(cluster_notice(node, NOTICE_PEER_SUSPECTED), "rank 1 was not heard for 1.5 s");
	cr_assert_null(cluster_notice(node, NOTICE_PEER_LOST));
	cluster_advance(cluster, 3000);
	cr_assert_eq(group_peer(node->group, 1).state, PEER_GONE);
	assert_has(cluster_notice(node, NOTICE_PEER_LOST), "rank 1");
	cluster_mute(cluster, 1, false);
	cluster_advance(cluster, 500);
	cr_assert_eq(group_peer(node->group, 1).state, PEER_JOINED);
	assert_has(cluster_notice(node, NOTICE_PEER_BACK), "rank 1");
	cr_assert_eq(group_generation(node->group), generation);
	cluster_free(cluster);
}

Test(group_membership, without_grace_a_suspected_peer_is_gone_at_once)
{
	struct cluster *cluster = cluster_new(2);
	cluster->grace_ms = 0;
	cluster_form(cluster);
	cluster_advance(cluster, 1000);
	cluster_mute(cluster, 1, true);
	cluster_advance(cluster, 1500);
	cr_assert_eq(group_peer(cluster->nodes[0].group, 1).state, PEER_GONE);
	cr_assert_not_null(cluster_notice(&cluster->nodes[0], NOTICE_PEER_SUSPECTED));
	cluster_free(cluster);
}

Test(group_membership, another_daemon_of_a_rank_is_refused_until_the_old_one_is_silent)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	struct node *node = &cluster->nodes[0];
	uint64_t generation = group_generation(node->group);
	cluster_advance(cluster, 500);
	cluster_stop(cluster, 1);
	cluster_start(cluster, 1);
	cluster_advance(cluster, 500);
	assert_has(cluster_notice(node, NOTICE_PEER_REFUSED), "rank 1 is taken by another daemon (incarnation ");
	assert_has(cluster_notice(&cluster->nodes[1], NOTICE_PEER_REFUSED),
		   "give this one another rank, or stop the other");
	assert_has(group_peer(node->group, 1).refusal, "taken");
	cr_assert_eq(group_generation(node->group), generation);
	cluster_advance(cluster, 2000);
	cr_assert_neq(group_generation(node->group), 0);
	cr_assert_neq(group_generation(node->group), generation);
	cr_assert_eq(group_generation(cluster->nodes[1].group), group_generation(node->group));
	cr_assert_null(group_peer(node->group, 1).refusal);
	cluster_free(cluster);
}

Test(group_membership, a_link_that_breaks_changes_nothing)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	uint64_t generation = group_generation(cluster->nodes[0].group);
	cluster_relink(cluster, 0, 1);
	cluster_relink(cluster, 1, 0);
	cluster_advance(cluster, 1000);
	cr_assert_eq(group_generation(cluster->nodes[0].group), generation);
	cr_assert_eq(group_peer(cluster->nodes[0].group, 1).state, PEER_JOINED);
	cluster_free(cluster);
}
