// Trials as jobs of a cluster: what an AdaptDLJob needs to run one.
//
// A trial's job is named STUDY-N and has the labels of its study and trial. The program gets the parameters as in a run
// of this machine (command_template.h). Its file of results (adaptdl/report.h) is its standard output, because that is
// what can be read of a job while it runs.
//
// Threading: functions of their arguments.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/submission.h"
#include "tune/space.h"

namespace adaptdl::sched::tune {

// Labels of a trial's job.
inline constexpr char kStudyLabel[] = "adaptdl/study";
inline constexpr char kTrialLabel[] = "adaptdl/trial";
// A value drawn at random, which distinguishes a study from others of its name.
inline constexpr char kStudyIdLabel[] = "adaptdl/study-id";

struct TrialJobPlan {
  std::string study, study_id;
  nlohmann::json job;                  // from a job file; its first container runs the program, its name is ignored
  kube::SubmissionOptions submission;  // of all jobs; `name`, `arguments` and `claim` are ignored
  std::vector<std::string> command;    // see command_template.h
};

std::string trial_job_name(const std::string& study, int number);
// The number of the trial whose job this is; none if the job does not have a valid label of a trial.
std::optional<int> trial_of(const nlohmann::json& job);
// Selects the jobs of all trials of the study.
std::string trial_selector(const std::string& study_id);

// The job and the claim of its volume, whose name is the same each time. Throws UsageError as make_submission() does.
kube::Submission make_trial_job(const TrialJobPlan& plan, int number, const Values& values);

// Throws UsageError if jobs cannot have names that begin with that of the study.
void check_job_names(const std::string& study);

}  // namespace adaptdl::sched::tune
